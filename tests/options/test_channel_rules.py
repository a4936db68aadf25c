"""Rules of channels, with those of their topics as defaults."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from nsqc.options.declared import ChannelTable, Options, Settings, TopicTable
from nsqc.options.rules import ChannelRules, TopicRules
from tests.support.log import RecordingLog

S = 10**9


def test_a_channel_begins_with_the_rule_of_its_topic(tmp_path):
    options = Options(
        topics=(TopicTable("a*", {"message_ttl": 5 * S, "max_depth": 7, "overflow": "drop-oldest"}),),
        channels=(ChannelTable("*/own", {"message_ttl": 0}), ChannelTable("*/other", {"rate": 5.0})))

    async def main():
        with ThreadPoolExecutor(1) as workers:
            settings = Settings(options)
            given = asyncio.get_running_loop(), workers, str(tmp_path), settings, RecordingLog()
            topics = TopicRules(*given)
            rules = ChannelRules(*given, topics)
            seen: list[bytes | None] = []
            rules.on_change(seen.append)
            assert rules.of(b"b/c").is_off and rules.of(b"b/c").source == "default"
            assert rules.of(b"a/c") is rules.of(b"a2/c")        # few rules, however many channels
            assert rules.of(b"a/c").as_json() == {"message_ttl": "5s", "max_depth": 7, "overflow": "drop-oldest"}
            assert rules.of(b"a/c").source == 'topic: config [topics."a*"]'
            assert rules.of(b"a/own").as_json() == {"max_depth": 7, "overflow": "drop-oldest"}
            assert rules.of(b"a/other").as_json() == {
                "rate": 5.0, "message_ttl": "5s", "max_depth": 7, "overflow": "drop-oldest"}
            await topics.set(b"a", {"message_ttl": S})
            assert seen == [b"a/"]
            assert rules.of(b"a/c").as_json()["message_ttl"] == "1s"
            assert rules.of(b"a2/c").as_json()["message_ttl"] == "5s"
            await rules.set(b"a/c", {"message_ttl": 0})
            assert rules.of(b"a/c").as_json() == {"max_depth": 7, "overflow": "drop-oldest"}
            settings.change(topics=())
            assert rules.of(b"a2/c").is_off

    asyncio.run(main())


def test_how_logs_overflow_is_no_rule_of_a_channel(tmp_path):
    """--log-overflow alone changes nothing for channels."""

    async def main():
        with ThreadPoolExecutor(1) as workers:
            given = (asyncio.get_running_loop(), workers, str(tmp_path),
                     Settings(Options(log_overflow="drop-oldest")), RecordingLog())
            assert ChannelRules(*given, TopicRules(*given)).of(b"t/c").is_off

    asyncio.run(main())
