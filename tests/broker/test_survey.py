"""Numbers for metrics, collected while topics and channels are deleted."""

import asyncio

import pytest

from nsqc.broker.survey import CHANNEL_COLUMNS, TOPIC_COLUMNS, Survey
from nsqc.httpd.metrics import _families
from nsqc.metrics import declared
from nsqc.metrics.encoding import TEXT
from nsqc.metrics.table import Text
from tests.broker.harness import publish, run, until
from tests.metrics.pages import Samples, families, samples_of, value

TOPICS, CHANNELS = 25, 1000     # more than a slice
LAST = b"c%d#ephemeral" % (CHANNELS - 1)


async def collected(broker, meanwhile=lambda: None) -> Samples:
    """Calls meanwhile() after the first slice."""
    done: list[bool] = []
    survey = Survey(broker, lambda: done.append(True))
    survey.start()
    await asyncio.sleep(0)
    assert not done, "there are too few channels"
    meanwhile()
    await until(lambda: done)
    assert survey.failure is None
    text = Text(survey.topics, survey.channels, _families(TEXT))
    page = b""
    while piece := text.piece(1 << 20, False):
        page += piece
    return samples_of(families(page.decode()))


def test_every_column_is_a_metric():
    assert set(TOPIC_COLUMNS) == set(declared.OF_TOPICS) and set(CHANNEL_COLUMNS) == set(declared.OF_CHANNELS)


@pytest.mark.parametrize("folds", [False, True])
def test_counters_of_shared_series_do_not_fall_when_names_go_meanwhile(tmp_path, folds):
    """The slice ends between channels of a plain topic; ephemeral topics come later."""
    shared = {} if folds else {"channel": "#ephemeral"}

    def numbers(samples):
        return [value(samples, "nsqc_topic_messages_total", topic="#ephemeral"),
                value(samples, "nsqc_channel_messages_total", topic="#ephemeral", **shared),
                *[value(samples, "nsqc_channel_messages_total", topic=f"t{number}", **shared)
                  for number in range(TOPICS)]]

    async def scenario(broker):
        broker.folds_channels = folds
        plain = [broker.get_topic(b"t%d" % number) for number in range(TOPICS)]
        whole, part = broker.get_topic(b"whole#ephemeral"), broker.get_topic(b"part#ephemeral")
        for topic in plain:
            for number in range(CHANNELS):
                topic.get_channel(b"c%d#ephemeral" % number)
        for topic in (whole, part):
            topic.get_channel(b"first")
            topic.get_channel(LAST)
        for topic in (*plain, whole, part):
            assert await publish(topic, b"x") == 0
        await until(lambda: all(topic.depth == 0 for topic in (*plain, whole, part)))

        def leave():
            broker.delete_topic(whole.name)
            for topic in (*plain, part):
                topic.delete_channel(LAST)

        expected = [2, 4, *[CHANNELS] * TOPICS]
        assert numbers(await collected(broker)) == expected
        assert numbers(await collected(broker, leave)) == expected
        assert numbers(await collected(broker)) == expected

    run(tmp_path, scenario)
