"""nsqd.dat: its text, its pieces, and recovery from a damaged one."""

import asyncio
import json
import random
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from nsqc.broker import metadata
from nsqc.store.disk.recovery import Index
from nsqc.store.work import Slicer
from tests.support.log import RecordingLog


class Named:
    """A topic or channel as the writer sees it."""

    def __init__(self, name, channels=()):
        self.name = name
        self.paused = False
        self.ephemeral = name.endswith(b"#ephemeral")
        self.channels = {channel.name: channel for channel in channels}


class Broker:
    def __init__(self, *topics):
        self.topics = {topic.name: topic for topic in topics}


def whole(broker) -> bytes:
    """The text that the structures produce."""
    return msgspec.json.encode(metadata.Saved([
        metadata.SavedTopic(topic.name.decode(), topic.paused, [
            metadata.SavedChannel(channel.name.decode(), channel.paused)
            for channel in topic.channels.values() if not channel.ephemeral] or None)
        for topic in broker.topics.values() if not topic.ephemeral] or None))


def run(scenario, broker, folder):
    async def main():
        broker.slicer = Slicer(asyncio.get_running_loop())
        with ThreadPoolExecutor(2) as workers:
            writer = metadata.MetadataWriter(asyncio.get_running_loop(), workers, folder, broker, RecordingLog())
            await scenario(writer)

    asyncio.run(main())


@pytest.mark.parametrize("broker", [
    Broker(), Broker(Named(b"t")), Broker(Named(b"e#ephemeral", [Named(b"c")])),
    Broker(Named(b"t", [Named(b"c"), Named(b"e#ephemeral")]), Named(b"u", [Named(b"e#ephemeral")])),
    Broker(*(Named(b"t%d" % n, [Named(b"c%d" % m) for m in range(n)]) for n in range(5))),
])
def test_the_text_is_that_of_the_structures(tmp_path, broker):
    async def scenario(writer):
        writer.write_all()

    run(scenario, broker, tmp_path)
    assert (tmp_path / "nsqd.dat").read_bytes() == (tmp_path / "nsqd.dat.last").read_bytes() == whole(broker)


def test_random_changes_are_all_written(tmp_path):
    broker = Broker()
    chance = random.Random(5)

    def change(writer):
        name = b"t%d" % chance.randrange(30)
        topic = broker.topics.get(name)
        if topic is None:
            topic = broker.topics[name] = Named(name)
        elif chance.random() < 0.3:
            del broker.topics[name]
        elif chance.random() < 0.5:
            topic.paused = not topic.paused
        else:
            channel = Named(b"c%d" % chance.randrange(5))
            if topic.channels.pop(channel.name, None) is None:
                topic.channels[channel.name] = channel
        return writer.save(topic)

    async def scenario(writer):
        for _ in range(100):
            for _ in range(chance.randrange(10)):
                change(writer)
            await asyncio.sleep(0)
            if chance.random() < 0.2:
                await change(writer)
                assert json.loads((tmp_path / "nsqd.dat").read_bytes()) == json.loads(metadata.text(
                    list(writer._pieces.values())))
        await writer.finish()

    run(scenario, broker, tmp_path)
    found = json.loads((tmp_path / "nsqd.dat").read_bytes())
    expected = json.loads(whole(broker))
    assert sorted(found["topics"], key=lambda one: one["name"]) == sorted(expected["topics"], key=lambda one: one["name"])


def test_a_change_makes_one_piece_and_a_burst_one_file(tmp_path, monkeypatch):
    broker = Broker(*(Named(b"t%d" % n) for n in range(5000)))
    made, written = [], []
    real_piece, real_write = metadata.piece, metadata.write
    monkeypatch.setattr(metadata, "piece", lambda topic: made.append(topic.name) or real_piece(topic))
    monkeypatch.setattr(metadata, "write", lambda *args: written.append(1) or real_write(*args))

    async def scenario(writer):
        writer.write_all()
        made.clear()
        written.clear()
        await writer.save(broker.topics[b"t7"])
        assert made == [b"t7"]
        assert len(written) == 1
        made.clear()
        written.clear()
        await asyncio.gather(*{id(one): one for one in (writer.save(topic) for topic in broker.topics.values())}.values())
        assert len(made) == 5000
        assert len(written) <= 3

    run(scenario, broker, tmp_path)


def load(folder):
    log = RecordingLog()
    found = metadata.load(folder, Index(str(folder)), [], log)
    return {topic.name: (topic.paused, {channel.name: channel.paused for channel in topic.channels or ()})
            for topic in found.topics or ()}, log


GOOD = b'{"name":"good","paused":true,"channels":[{"name":"c","paused":true}]}'
WHOLE = {"good": (True, {"c": True})}


@pytest.mark.parametrize("bad", [
    b'{"name":"caf\xe9","paused":false,"channels":null}',
    b'{"name":"\\ud800","paused":false,"channels":null}',
    b'{"name":"a\x01b","paused":false,"channels":null}',
    b'{"name":7}', b'{"paused":true}', b"null", b"[]", b"17", b'{"name":null}',
])
def test_names_that_are_no_text_cost_only_themselves(tmp_path, bad):
    data = b'{"topics":[%b,%b],"version":"1.3.0"}' % (bad, GOOD)
    (tmp_path / "nsqd.dat").write_bytes(data)
    found, log = load(tmp_path)
    assert found == WHOLE
    assert (tmp_path / "nsqd.dat.bad").read_bytes() == data
    assert any("is ignored" in line for line in log.lines)


@pytest.mark.parametrize("bad", [b'{"name":"\xff"}', b"null", b'{"name":"\\udfff","paused":true}', b'{"name":{}}'])
def test_channels_that_are_no_text_cost_only_themselves(tmp_path, bad):
    data = b'{"topics":[{"name":"good","paused":true,"channels":[%b,{"name":"c","paused":true}]}]}' % bad
    (tmp_path / "nsqd.dat").write_bytes(data)
    assert load(tmp_path)[0] == WHOLE


def test_an_earlier_bad_file_stays(tmp_path):
    (tmp_path / "nsqd.dat.bad").write_bytes(b"earlier")
    (tmp_path / "nsqd.dat").write_bytes(b'{"topics":[{"name":"\xff"}]}')
    load(tmp_path)
    assert (tmp_path / "nsqd.dat.bad").read_bytes() == b"earlier"
    assert (tmp_path / "nsqd.dat.bad.1").exists()


@pytest.mark.parametrize("data", [b"", b'{"topics":[{"na', b"\xff\xfe", b"[" * 100_000, b'{"topics":17}', b"[1]"])
def test_what_is_no_such_json_is_rebuilt(tmp_path, data):
    (tmp_path / "nsqd.dat").write_bytes(data)
    (tmp_path / "nsqd.dat.last").write_bytes(b'{"topics":[%b]}' % GOOD)
    assert load(tmp_path)[0] == WHOLE
    (tmp_path / "nsqd.dat").write_bytes(data)
    (tmp_path / "nsqd.dat.last").unlink()
    with pytest.raises(metadata.MetadataError):
        load(tmp_path)


def test_queue_files_of_names_that_are_none_add_nothing(tmp_path):
    for name in (b"caf\xe9", b"a b", b"t:c:d", b"t:", b":c"):
        (tmp_path / (name + b".diskqueue.000000.dat").decode("utf-8", "surrogateescape")).write_bytes(b"x")
    (tmp_path / "t:c.diskqueue.000000.dat").write_bytes(b"x")
    (tmp_path / "t:empty.diskqueue.000000.dat").write_bytes(b"")
    assert load(tmp_path)[0] == {"t": (False, {"c": False})}
