"""nsqc to-file: no message is finished before it is stored."""

import gzip
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import cramjam
import pytest

from tests.e2e.test_space import INSIDE, MOUNT
from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer
from tests.tools.conftest import Tool, Tools, unused_address

QUICK = ("--sync-interval", "50ms")
MAY_MOUNT = subprocess.run([*INSIDE, "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode == 0


def content(folder, unpack=lambda data: data) -> list[bytes]:
    """All lines of all files, also of those in folders."""
    return [line for path in sorted(folder.rglob("*")) if path.is_file() for line in unpack(path.read_bytes()).splitlines()]


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def test_a_file_for_each_hour_is_appended_to(tools, out):
    topic = tools.topic("nsq_to_file")
    for bodies in ((b"a", b"b"), (b"c",)):
        tools.publish(topic, *bodies)
        running = tools.start("to-file", "--topic", topic, "-o", str(out), "--host-identifier", "here", *QUICK)
        tools.drained(topic, "nsq_to_file")
        assert running.stop(signal.SIGTERM) == 0
        assert running.err == ""
    (path,) = out.iterdir()
    assert path.name == time.strftime(f"{topic}.here.%Y-%m-%d_%H.log")
    assert path.read_bytes() == b"a\nb\nc\n"


@pytest.mark.parametrize("kind, suffix, unpack", [
    ("gzip", ".gz", gzip.decompress), ("zstd", ".zst", lambda data: bytes(cramjam.zstd.decompress(data)))])
def test_compressed_and_moved_when_complete(tools, out, tmp_path, kind, suffix, unpack):
    topic, work = tools.topic("nsq_to_file"), tmp_path / "work"
    work.mkdir()
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--work-dir", str(work), "--compress", kind,
                          "--filename-format", "<TOPIC>/x<REV>.log", *QUICK)
    for body in (b"one", b"two"):
        tools.publish(topic, body)
        tools.drained(topic, "nsq_to_file")
    # Synced data can be unpacked while the file grows, and is in no other folder yet.
    assert content(work, unpack) == [b"one", b"two"] and content(out) == []
    assert running.stop() == 130
    assert [path.name for path in (out / topic).iterdir()] == [f"x-000000.log{suffix}"]
    assert content(out, unpack) == [b"one", b"two"] and content(work) == []


def test_rotation_by_size(tools, out):
    topic = tools.topic("nsq_to_file")
    tools.publish(topic, *[b"%02d" % number for number in range(7)])
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--rotate-size", "3", "--filename-format",
                          "f<REV>", *QUICK)
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0
    assert [path.stat().st_size for path in sorted(out.iterdir())] == [6, 6, 6, 3]


def test_hangup_and_time_begin_new_files(tools, out):
    topic = tools.topic("nsq_to_file")
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--rotate-interval", "1h", "--filename-format",
                          "f<REV>", "--verbose", *QUICK)
    for count in (1, 2):
        tools.publish(topic, b"x")
        tools.drained(topic, "nsq_to_file")
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda count=count: not any("f-00000" in link for link in descriptors(running)) or count < 0)
        wait_until(lambda count=count: len(list(out.iterdir())) == count)
    assert running.stop(signal.SIGTERM) == 0
    assert sorted(path.name for path in out.iterdir()) == ["f-000000", "f-000001"]


def descriptors(running) -> list[str]:
    folder = f"/proc/{running.process.pid}/fd"
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("more, most, in_flight", [
    ((), 400, 300), ((), 2000, 1500), pytest.param(("--compress", "gzip"), 400, 300, marks=pytest.mark.long)],
    ids=["plain", "past the page cache", "gzip"])
def test_killed_at_random_points_it_loses_nothing_that_was_finished(daemon, tmp_path, out, more, most, in_flight):
    tools = Tools(daemon("--msg-timeout=1s"), tmp_path)  # messages in flight to the killed tool come again after that
    topic = tools.topic("nsq_to_file")
    chance = random.Random(7)
    sent: set[bytes] = set()
    for round_number in range(5):
        bodies = [b"%d-%d-" % (round_number, number) + b"x" * chance.randrange(most) for number in range(4000)]
        tools.publish(topic, *bodies)
        sent.update(bodies)
        running = tools.start("to-file", "--topic", topic, "-o", str(out), "--sync-interval", "5ms", "--max-in-flight", str(in_flight),
                              "--filename-format", "f<REV>", *more)
        left = tools.node.channel(topic, "nsq_to_file")
        wait_until(lambda before=left["depth"]: tools.node.channel(topic, "nsq_to_file")["depth"] < before)
        time.sleep(chance.random() * 0.05)
        running.process.kill()
        running.process.wait()
    wait_until(lambda: not tools.node.channel(topic, "nsq_to_file")["clients"])
    stored = set()
    for path in out.iterdir():
        data = path.read_bytes()
        if more:
            data = unpacked(data)
        stored.update(data.splitlines())
    waiting = set(tools.taken(topic, "nsq_to_file"))
    assert sent <= stored | waiting
    assert len(waiting) < len(sent)


def unpacked(data: bytes) -> bytes:
    """The complete members of a gzip file."""
    import zlib

    found = b""
    while data:
        member = zlib.decompressobj(31)
        text = member.decompress(data)
        if not member.eof:
            break
        found, data = found + text, member.unused_data
    return found


def test_a_disk_that_is_full(tools, out):
    """No unsynced message is finished, its partial data is cut off, and the tool continues when there is room."""
    topic = tools.topic("nsq_to_file")
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--filename-format", "f", *QUICK)
    tools.publish(topic, b"fits")
    tools.drained(topic, "nsq_to_file")
    hard = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (1000, hard))
    bodies = [b"%03d" % number + b"x" * 97 for number in range(50)]
    tools.publish(topic, *bodies)
    running.says("no message of it finished, retrying in 0.5 s")
    assert f"nsqc to-file: {topic}: {out}/f: File too large" in running.err
    assert (out / "f").read_bytes() == b"fits\n"
    found = tools.node.channel(topic, "nsq_to_file")
    assert found["depth"] + found["in_flight_count"] + found["deferred_count"] == 50
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0
    assert sorted(content(out)) == sorted([b"fits", *bodies])


@pytest.mark.skipif(not MAY_MOUNT, reason="this user may not mount a file system")
def test_a_file_system_that_is_full(tools, out):
    """Each message is stored, once, when the disk is larger; none is held meanwhile, and one message at a time
    tries."""
    topic = tools.topic("nsq_to_file")
    bodies = [b"%05d" % number + b"x" * 1000 for number in range(3000)]
    tools.publish(topic, *bodies)
    command = [*INSIDE, MOUNT % 1, str(out), sys.executable, "-m", "nsqc", "to-file", "--topic", topic, "-o", str(out), "--filename-format", "f",
               *QUICK, *tools.nodes]
    running = Tool(command, tools.folder, cwd=tools.folder)
    tools.running.append(running)
    running.says("No space left on device; no message of it finished, retrying in 1 s")
    wait_until(lambda: tools.node.channel(topic, "nsq_to_file")["in_flight_count"] == 0)
    pid = str(running.process.pid)
    subprocess.run(["nsenter", "--target", pid, *(() if os.geteuid() == 0 else ("--user", "--preserve-credentials")), "--mount", "mount",
                    "-o", "remount,size=20m", str(out)], check=True)
    tools.drained(topic, "nsq_to_file")
    assert sorted(content(Path(f"/proc/{pid}/root{out}"))) == bodies
    assert running.stop(signal.SIGTERM) == 0


def test_a_compressed_file_that_cannot_grow_is_left_behind(tools, out):
    """It cannot be appended to, and a taken name is not worth a line."""
    topic = tools.topic("nsq_to_file")
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--filename-format", "f<REV>", "--compress", "gzip", *QUICK)
    tools.publish(topic, b"fits")
    tools.drained(topic, "nsq_to_file")
    hard = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (1000, hard))
    body = os.urandom(2000).hex().encode()
    tools.publish(topic, body)
    running.says("retrying in 0.5 s")
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0
    assert [gzip.decompress((out / f"f-00000{number}.gz").read_bytes()) for number in range(2)] == [b"fits\n", body + b"\n"]
    assert re.fullmatch(rf"nsqc to-file: {topic}: {out}/f-000000.gz: File too large; no message of it finished, .*\n", running.err)


def test_a_hangup_before_there_is_anything_to_close(tools, out, tmp_path):
    topic, config = tools.topic("nsq_to_file"), tmp_path / "config"
    os.mkfifo(config)
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--filename-format", "f", "--config", str(config), *QUICK, nodes=False)
    with config.open("w") as file:      # it is reading its config
        running.process.send_signal(signal.SIGHUP)
        file.write(f'tcp_address = "{tools.tcp}"\nhttp_address = "{tools.http}"\n')
    tools.publish(topic, b"x")
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0 and content(out) == [b"x"]


def test_a_line_that_a_kill_has_cut_off_spoils_no_other(tools, out):
    topic = tools.topic("nsq_to_file")
    (out / "f").write_bytes(b"whole\ncut o")
    tools.publish(topic, b"next")
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--filename-format", "f", *QUICK)
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0
    assert content(out) == [b"whole", b"cut o", b"next"]


def test_names_that_are_taken_are_not_overwritten(tools, out, tmp_path):
    topic, work = tools.topic("nsq_to_file"), tmp_path / "work"
    work.mkdir()
    (out / "f-000000").write_bytes(b"of another\n")
    tools.publish(topic, b"mine")
    running = tools.start("to-file", "--topic", topic, "-o", str(out), "--work-dir", str(work), "--filename-format",
                          "f<REV>", *QUICK)
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0
    assert (out / "f-000000").read_bytes() == b"of another\n" and (out / "f-000001").read_bytes() == b"mine\n"


@pytest.mark.parametrize("words, text", [
    (("-o", "/nowhere"), "/nowhere does not exist"), (("--compress", "gzip", "--filename-format", "f"), "needs a <REV>"),
    (("--compress", "gzip", "--level", "12"), "--level: 12 is not from 1 to 9"), (("--topic-pattern", "["), "--topic-pattern:"),
    (("--work-dir", "/proc"), "the same filesystem"), (("--compress", "lzma"), "'lzma' is not one of none, gzip, zstd")])
def test_what_cannot_begin(inside, tools, words, text):
    done = inside("to-file", "--topic", "x", *words, *tools.nodes)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_topic_cannot_lead_out_of_the_folder(tools, out):
    for topic in ("..", "."):
        tools.node.post(f"/topic/create?topic={topic}")
        tools.node.post(f"/channel/create?topic={topic}&channel=nsq_to_file")
        tools.publish(topic, topic.encode())
    running = tools.start("to-file", "--topic", "..", "--topic", ".", "-o", str(out), "--filename-format", "<TOPIC>/f", *QUICK)
    for topic in ("..", "."):
        tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGTERM) == 0
    assert sorted(str(path.relative_to(out)) for path in out.rglob("f")) == ["_/f", "__/f"]


def test_no_nsqd(tools):
    done = tools.run("to-file", "--topic", "x", "--nsqd", unused_address(), nodes=False)
    assert (done.returncode, done.stderr.decode()) == (3, "nsqc to-file: no nsqd answers: 127.0.0.1:1: Connection refused\n")


def test_topics_that_fit_a_pattern(tools, daemon, out, tmp_path):
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        node = daemon(f"--lookupd-tcp-address=127.0.0.1:{server.tcp_port}", "--broadcast-address=127.0.0.1")
        running = tools.start("to-file", "--topic-pattern", "^app[.]", "--topic-refresh", "200ms", "-o", str(out), "--filename-format",
                              "<TOPIC>", "--nsqlookupd", f"127.0.0.1:{server.http_port}", *QUICK, nodes=False)
        for topic in ("app.one", "other", "app.two"):
            node.post(f"/pub?topic={topic}", topic.encode())
        wait_until(lambda: content(out) == [b"app.one", b"app.two"])
        assert running.stop(signal.SIGTERM) == 0
        assert running.err == ""
    finally:
        server.close()
