"""Log-backed topics, without sockets: long work is sliced, and nothing remains of clients that have left."""

import asyncio
import errno
import itertools
import os
import re
import sys
import time

import pytest

from nsqc.broker import storage
from nsqc.broker.topic import PENDING
from nsqc.store.disk import fileio
from nsqc.store.log.journal import fold
from nsqc.store.log.manager import read_progress
from nsqc.store.log.reading import LogBlock
from nsqc.store.log.recovery import read_folder
from tests.broker.harness import publish, run, until, written
from tests.compiled.taker import Taker

MANY = 150_000      # take some ten slices


def test_a_channel_steps_over_deferred_messages_in_slices(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        channel.pause()
        for _ in range(MANY):
            topic.publish(b"x", 3_600_000)
        assert await publish(topic, b"at once") == 0
        await until(lambda: topic.log.visible == MANY + 1)
        taker = Taker(1)
        taker.subscribe(channel)
        channel.unpause()
        assert 0 < channel.position < MANY, "the first slice has an end"
        await until(lambda: taker.message_count == 1)
        assert (channel.depth, channel.deferred_count, channel.in_flight_count) == (0, MANY, 1)

    run(tmp_path, scenario, topic_storage="log")


def test_deliveries_wait_for_a_full_journal_and_continue(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        assert await publish(topic, b"x") == 0
        storage.settle(topic, list(range(1, 720_000, 2)))      # more than 8 MiB of operations
        taker = Taker(1)
        taker.subscribe(channel)
        channel.pause()
        channel.unpause()
        assert taker.message_count == 0
        await until(lambda: taker.message_count == 1)

    run(tmp_path, scenario, topic_storage="log")


def test_a_log_keeps_nothing_of_those_who_wait_no_longer(tmp_path):
    async def scenario(broker):
        log = broker.get_topic(b"t").log
        waits = log.when_readable(0, lambda: None)
        waits.cancel()
        assert sys.getrefcount(waits) == 2, "the name and the argument"

    run(tmp_path, scenario, topic_storage="log")


def test_a_stop_syncs_only_what_was_written(tmp_path, monkeypatch):
    """Thousands of idle logs cost a stop nothing."""
    synced = []
    sync_path = fileio.sync_path
    monkeypatch.setattr(fileio, "sync_path", lambda path, *rewrite: (synced.append(os.path.basename(path)), sync_path(path, *rewrite)))

    def run_of(steps, stopped=True):
        async def scenario(broker):
            topic = broker.get_topic(b"t")
            await steps(topic, topic.get_channel(b"c"))

        synced.clear()
        run(tmp_path, scenario, stopped=stopped, topic_storage="log", log_sync="write")
        return set(synced)

    async def nothing(topic, channel):
        pass

    async def published(topic, channel):
        assert await publish(topic, b"x") == 0

    async def emptied(topic, channel):
        channel.empty()     # the stop itself writes this to the journal

    segment, journal = f"{0:020}.log", "cursors.000001"
    assert {segment, journal, "manifest", "t.log"} <= run_of(published)
    assert run_of(nothing) == set()
    assert journal in run_of(emptied)
    assert run_of(nothing) == set()
    assert {segment, "manifest"} <= run_of(published)
    assert run_of(nothing) == set()
    # After a kill, nothing is known to be on the disk.
    assert {segment, journal, "manifest", "t.log"} <= run_of(nothing, stopped=False)


def test_many_who_wait_are_woken_in_turn(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        woken = []
        waits = [topic.log.when_readable(0, lambda number=number: woken.append(number)) for number in range(1000)]
        waits[500].cancel()
        assert await publish(topic, b"x") == 0
        counts = [len(woken)]
        while counts[-1] < 999:
            await asyncio.sleep(0)
            counts.append(len(woken))
        # Two loop iterations may pass before the publisher is notified.
        assert max(after - before for before, after in itertools.pairwise([0, *counts])) <= 128
        assert woken == [number for number in range(1000) if number != 500]

    run(tmp_path, scenario, topic_storage="log")


@pytest.mark.parametrize("end", ["expiry", "delete"])
def test_many_whose_waiting_ends_are_told_in_turn(tmp_path, end):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        told = []
        waits = [topic.log.when_readable(0, lambda number=number: told.append(number)) for number in range(1000)]
        waits[500].cancel()
        if end == "delete":
            broker.delete_topic(b"t")
        else:
            for one in waits:
                one.expire()
                one.expire()
        counts = [len(told)]
        while counts[-1] < 999:
            await asyncio.sleep(0)
            counts.append(len(told))
        assert max(after - before for before, after in itertools.pairwise([0, *counts])) <= 64
        assert told == [number for number in range(1000) if number != 500]

    run(tmp_path, scenario, topic_storage="log")


@pytest.fixture
def four_open():
    """Each log keeps four files open."""
    fileio.limit_to(4)
    yield
    fileio.limit_to(1024)


def test_all_logs_together_keep_few_files_open(tmp_path, four_open):
    async def scenario(broker):
        for turn in range(3):
            for number in range(20):
                topic = broker.get_topic(b"t%d" % number)
                topic.get_channel(b"c%d" % turn)        # journaled
                assert await publish(topic, b"x") == 0
            await until(lambda: not any(topic.log.busy for topic in broker.topics.values()))
            assert len(open_below(tmp_path)) <= 4
        assert [broker.get_topic(b"t%d" % number).log.next for number in range(20)] == [3] * 20

    run(tmp_path, scenario, topic_storage="log")


COUNT = 100


async def with_segments(broker):
    """A topic with COUNT messages in many segments, none of them in memory, and its channel."""
    topic = broker.get_topic(b"t")
    topic.get_channel(b"c")
    for number in range(COUNT):
        assert await publish(topic, b"%030000d" % number) == 0
    topic.log.release()
    assert len(topic.log.numbered(0, 99)) > 5
    return topic, topic.channels[b"c"]


async def take(channel, count):
    """A consumer that has taken this many messages."""
    taker = Taker(count)
    taker.subscribe(channel)
    channel.pause()
    channel.unpause()
    await until(lambda: taker.message_count == count)
    return taker


async def half_read(broker):
    """The same, with half of the messages in flight."""
    topic, channel = await with_segments(broker)
    await take(channel, COUNT // 2)
    return topic, channel


def reading(folder):
    return [path for path in open_below(folder) if re.search(r"/[0-9]{20}\.log", path)]


def test_the_segment_that_is_read_stays_open_while_it_is_there_and_read(tmp_path):
    async def scenario(broker):
        topic, channel = await half_read(broker)
        assert len(reading(tmp_path)) == 1
        channel.empty()                                 # finished messages are no longer needed
        topic.retain()
        begin, end = topic.log.segment_numbers
        assert end - begin == 1
        assert reading(tmp_path) == []
        await publish(topic, b"one more")
        topic.log.release()
        assert reading(tmp_path) == []

    run(tmp_path, scenario, topic_storage="log", max_bytes_per_file=300_000)


@pytest.mark.parametrize("end", ["release", "delete"])
def test_nothing_stays_open_of_a_log_that_nobody_reads(tmp_path, end):
    async def scenario(broker):
        topic, _ = await half_read(broker)
        assert len(reading(tmp_path)) == 1
        if end == "delete":
            broker.delete_topic(b"t")
            await until(lambda: not broker.topics)
        else:
            topic.log.release()
        await until(lambda: not reading(tmp_path))

    run(tmp_path, scenario, topic_storage="log", max_bytes_per_file=300_000)


def test_logs_are_read_when_no_more_files_may_stay_open(tmp_path, four_open):
    async def scenario(broker):
        fileio.limit_to(0)
        _, channel = await with_segments(broker)
        taker = await take(channel, COUNT)
        assert taker.bodies == [b"%030000d" % number for number in range(COUNT)]
        assert reading(tmp_path) == []

    run(tmp_path, scenario, topic_storage="log", max_bytes_per_file=300_000)


def open_below(folder):
    """The open files in a folder."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.startswith(f"{folder}/"):
            found.append(path)
    return found


def test_a_topic_that_is_created_again_while_it_is_deleted(tmp_path):
    """A new log begins with the default rules, in its own files."""
    rules = tmp_path / "nsqc.rules.json"
    rules.write_text('{"topics": {"t": {"retain_bytes": 5000000}}}')

    async def scenario(broker):
        old = broker.get_topic(b"t")
        assert old.rule.source == "PUT /topic/rules"
        for number in range(5000):
            old.get_channel(b"c%d" % number)
        assert await publish(old, b"old") == 0
        broker.delete_topic(b"t")
        assert old.channels, "the deletion takes several slices"
        new = broker.get_topic(b"t")
        assert new.rule.source == "default"
        assert new.log.next == 0
        gone = asyncio.get_running_loop().create_future()
        old.when_gone(lambda: gone.set_result(None))
        assert not gone.done()
        assert await publish(new, b"new 1") == 0
        await gone
        await broker.removed()
        assert await publish(new, b"new 2") == 0
        assert new.log.id != old.log.id

    async def after(broker):
        topic = broker.get_topic(b"t")
        assert (topic.rule.source, topic.log.first, topic.log.next) == ("default", 0, 2)
        assert topic.get_channel(b"c").depth == 2

    run(tmp_path, scenario, topic_storage="log")
    segment, = tmp_path.glob("t.log*/*.log")
    assert b"new 1" in segment.read_bytes()
    run(tmp_path, after, topic_storage="log")


def test_a_refused_write_leaves_nothing_in_the_segment_before_the_one_that_it_could_not_begin(tmp_path):
    """Even if the daemon is killed before the next publish."""

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        topic.start()
        assert await publish(topic, b"first" * 20) == 0
        fileio.fail("write", errno.ENOSPC, skip=1)
        assert topic.publish(b"a" * 500) == PENDING
        time.sleep(0.002)       # another frame
        assert topic.publish(b"b" * 3000) == PENDING
        assert await written(topic) == errno.ENOSPC
        found = read_folder(str(tmp_path / "t.log"))
        assert (found.next, len(found.segments)) == (1, 1)

    run(tmp_path, scenario, topic_storage="log", max_bytes_per_file=2000)


# ---------------------------------------------------------------------- what is new

def bodies_in(frames):
    """The bodies of all records in extents, read from their files."""
    found = []
    for extent in frames:
        with open(extent.path, "rb") as file:
            data = os.pread(file.fileno(), extent.length, extent.position)
        found += [row[3] for row in LogBlock(data, len(data), extent.salt, extent.position, extent.first, extent.end)]
    return found


def copy_journal(news, folder, parts):
    """Adds what is new to a copy of the journal."""
    for extent in news.journal:
        with open(extent.path, "rb") as file:
            file.seek(extent.position)
            parts.append((extent.salt, extent.position, file.read(extent.length)))
        with open(extent.path, "rb") as file, open(folder / os.path.basename(extent.path), "ab") as copy:
            assert copy.tell() == extent.position
            copy.write(os.pread(file.fileno(), extent.length if extent.length >= 0 else 1 << 30, extent.position))


def test_what_is_new_since_a_point_can_be_read_from_files(tmp_path):
    copy, folded, parts = tmp_path / "copy.log", tmp_path / "folded.log", []
    copy.mkdir()
    folded.mkdir()

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        taker, point, total = Taker(1000), None, 0
        taker.subscribe(channel)
        for count in 3, 1, 40, 0:
            bodies = [b"%d-%d" % (total, number) * 100 for number in range(count)]
            for body in bodies:
                assert await publish(topic, body) == 0
            total += count
            await until(lambda total=total: taker.message_count == total)
            await until(lambda: not topic.log.busy)
            news = topic.log.since(point)
            assert bodies_in(news.frames) == bodies
            assert all(extent.first < extent.end for extent in news.frames)
            assert (count == 0) == (news.frames == [])
            copy_journal(news, copy, parts)
            assert news.point.next == topic.log.next == total
            assert topic.log.since(news.point)[:3] == ([], [], news.point)
            point = news.point
        assert len({extent.salt for extent in topic.log.since().frames}) > 3, "segments"
        assert len(bodies_in(topic.log.since().frames)) == total
        other = topic.log.since(point._replace(id=point.id + 1))
        assert other == topic.log.since()

    run(tmp_path, scenario, topic_storage="log", log_retain_time=3600 * 10**9, max_bytes_per_file=5000)
    assert read_progress(str(copy)).named["c"].cursor == 44
    # The same, folded in two steps, as checkpoints do.
    last, data = fold(parts[:2], 0)
    assert last < fold(parts)[0]
    last, data = fold([(0, 0, data), *parts[2:]])
    (folded / "cursors.000001").write_bytes(data)
    assert read_progress(str(folded)).channels == read_progress(str(copy)).channels
    assert (read_progress(str(folded)).damaged, last) == (0, fold(parts)[0])


def test_after_a_compaction_the_whole_journal_is_new(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        assert await publish(topic, b"x") == 0
        storage.settle(topic, [1])
        await until(lambda: not topic.log.busy)
        point = topic.log.since().point
        storage.settle(topic, list(range(3, 720_000, 2)))      # more than 8 MiB of operations
        await until(lambda: topic.log.since().point.file > point.file and not topic.log.busy)
        news = topic.log.since(point)
        assert [os.path.basename(extent.path) for extent in news.journal][:1] == ["cursors.000002"]
        assert (news.journal[0].position, news.frames) == (0, [])

    run(tmp_path, scenario, topic_storage="log")
