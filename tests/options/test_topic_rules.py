"""The rule that applies to a topic, and notifications of changes."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqc.options.declared import Options, Settings, TopicTable
from nsqc.options.rule_tables import TOPICS
from nsqc.options.rules import MOST_KNOWN, TopicRules
from tests.support.log import RecordingLog


def run(tmp_path, scenario, **options):
    """Runs scenario(rules, settings, calls) on a loop; calls: the arguments of on_change()."""

    async def main():
        with ThreadPoolExecutor(2) as workers:
            settings = Settings(Options(**options))
            rules = TopicRules(asyncio.get_running_loop(), workers, str(tmp_path), settings, RecordingLog())
            calls = []
            rules.on_change(calls.append)
            await scenario(rules, settings, calls)
            await rules.written()

    asyncio.run(main())


def on_disk(tmp_path) -> dict:
    return json.loads((tmp_path / TOPICS.file).read_text())["topics"]


def test_many_globs_and_many_topics(tmp_path):
    tables = tuple(TopicTable(f"group{number}.*", {"retain_bytes": number}) for number in range(100))

    async def scenario(rules, settings, calls):
        names = [b"group%d.topic%d" % (number % 100, number) for number in range(MOST_KNOWN + 1000)]
        for _ in range(2):
            assert [rules.of(name).retain_bytes for name in names] == [number % 100 for number in range(len(names))]
        assert rules.of(b"group1") == rules.of(b"other") and rules.of(b"other").source == "default"

    run(tmp_path, scenario, topics=tables)


@pytest.mark.parametrize("glob", ["a[.]b", "a.b", "a?b", "[!bAx]*b", "[a-c].[a-c]"])
def test_globs_are_those_of_fnmatch(tmp_path, glob):
    async def scenario(rules, settings, calls):
        assert rules.of(b"a.b").storage == "log"
        assert rules.of(b"A.B").storage == rules.of(b"b").storage == rules.of(b"xa.bx").storage == "memory"

    run(tmp_path, scenario, topics=(TopicTable(glob, {"storage": "log"}),))


def test_listeners_are_notified_of_what_changes(tmp_path):
    async def scenario(rules, settings, calls):
        await rules.set(b"t", {"sync": "fsync"})
        assert calls == [b"t"]
        await rules.set(b"t", {"sync": "fsync"})
        await rules.set(b"t", {})
        await rules.set(b"t", {"storage": None})
        assert calls == [b"t"], "nothing has changed"
        settings.change(max_rdy_count=5)
        assert calls == [b"t"]
        settings.change(log_sync="fsync")
        assert calls == [b"t", None] and rules.of(b"u").sync == "fsync"
        settings.change(topics=(TopicTable("u", {"storage": "log"}),))
        assert calls == [b"t", None, None] and rules.of(b"u").storage == "log"
        rules.forget(b"t")
        assert calls == [b"t", None, None] and rules.of(b"t").source == "default"

    run(tmp_path, scenario)


def test_a_change_counts_only_once_it_is_on_disk(tmp_path):
    async def scenario(rules, settings, calls):
        change = asyncio.ensure_future(rules.set(b"t", {"sync": "fsync"}))
        await asyncio.sleep(0)
        assert rules.of(b"t").sync == "write" and calls == []
        assert (await change).sync == "fsync"
        assert on_disk(tmp_path) == {"t": {"sync": "fsync"}}

    run(tmp_path, scenario)


@pytest.mark.parametrize("was_set", [False, True])
def test_a_topic_that_is_deleted_while_its_rule_is_written(tmp_path, was_set):
    async def scenario(rules, settings, calls):
        if was_set:
            await rules.set(b"t", {"storage": "log"})
        first = asyncio.ensure_future(rules.set(b"t", {"sync": "fsync"}))
        other = asyncio.ensure_future(rules.set(b"u", {"sync": "fsync"}))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(rules.set(b"t", {"retain_bytes": 5}))
        await asyncio.sleep(0)
        rules.forget(b"t")
        later = asyncio.ensure_future(rules.set(b"t", {"overflow": "drop-oldest"}))
        await asyncio.gather(first, other, second, later)
        await rules.written()
        assert on_disk(tmp_path) == {"u": {"sync": "fsync"}, "t": {"overflow": "drop-oldest"}}
        assert rules.of(b"t").storage == "memory" and rules.of(b"t").overflow == "drop-oldest"

    run(tmp_path, scenario)


def test_a_failed_write_fails_its_changes_only(tmp_path):
    async def scenario(rules, settings, calls):
        await rules.set(b"t", {"sync": "fsync"})
        (tmp_path / TOPICS.file).unlink()
        (tmp_path / TOPICS.file).mkdir()
        (tmp_path / TOPICS.file / "full").touch()
        failing = [asyncio.ensure_future(rules.set(name, {"storage": "log"})) for name in (b"t", b"u")]
        assert all(isinstance(result, OSError) for result in await asyncio.gather(*failing, return_exceptions=True))
        assert rules.of(b"t").storage == rules.of(b"u").storage == "memory" and calls == [b"t"]
        (tmp_path / TOPICS.file / "full").unlink()
        (tmp_path / TOPICS.file).rmdir()
        await rules.set(b"v", {"storage": "log"})
        assert on_disk(tmp_path) == {"t": {"sync": "fsync"}, "v": {"storage": "log"}}

    run(tmp_path, scenario)
