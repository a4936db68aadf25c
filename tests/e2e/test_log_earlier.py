"""Logs of which some files are gone, or are from an earlier moment: a copy of a live folder, a restored file, a disk
after a power failure."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nsqc.store.log.check import check_folder
from nsqc.store.log.names import SEGMENT
from tests.support.counting import consume, consume_all, numbered
from tests.support.daemon import Daemon, logged, wait_until
from tests.support.power.disk import other_boot

LOG = ("--topic-storage=log", "--max-bytes-per-file=2000")
JUMP = 1 << 40              # offsets reserved at once


def described(node: Daemon) -> dict[str, int]:
    return json.loads(node.http("GET", "/topic/log?topic=t")[1])


def segments_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if SEGMENT.fullmatch(path.name))


def faults_of(folder: Path) -> list[str]:
    return [finding.text for finding in check_folder(str(folder)).findings if finding.is_fault]


def filled(node: Daemon, bodies: list[bytes]) -> Path:
    """Publishes, one message a frame, to a topic with a channel; returns the log's folder."""
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for body in bodies:
        node.post("/pub?topic=t", body)
    return node.data_path / "t.log"


def test_segments_that_the_manifest_does_not_know_are_delivered(daemon):
    node = daemon(*LOG)
    bodies = numbered(40, size=200)
    folder = filled(node, bodies[:10])
    early = (folder / "manifest").read_bytes()
    filled(node, bodies[10:])
    node.kill()
    (folder / "manifest").write_bytes(early)
    assert len(segments_of(folder)) > 4
    assert "older than the newest" in faults_of(folder)[0]
    node.start()
    logged(node, "the manifest is older than")
    assert (described(node)["next_offset"], described(node)["missing"]) == (40, 0)
    node.post("/pub?topic=t", b"later")
    assert described(node)["next_offset"] == 41
    assert consume_all(node, "t", "c", {*bodies, b"later"}) == {*bodies, b"later"}
    assert faults_of(folder) == []


def test_a_power_failure_with_a_manifest_from_an_earlier_moment_repeats_no_offset(daemon):
    """The lost manifest may have reserved more than the old one."""
    node = daemon(*LOG)
    bodies = numbered(40, size=200)
    folder = filled(node, bodies[:10])
    early = (folder / "manifest").read_bytes()
    filled(node, bodies[10:])
    node.kill()
    (folder / "manifest").write_bytes(early)
    other_boot(node.data_path)
    for _ in range(2):
        node.start()
        assert described(node)["next_offset"] == 2 * JUMP
        assert node.stop() == 0
    node.start()
    assert consume_all(node, "t", "c", set(bodies)) == set(bodies)


def test_the_oldest_segment_is_missed(daemon):
    node = daemon(*LOG)
    bodies = numbered(40, size=200)
    folder = filled(node, bodies)
    node.kill()
    oldest, following = segments_of(folder)[:2]
    gone = int(following.stem)
    oldest.unlink()
    assert faults_of(folder) == [f"{gone} messages before offset {gone} are gone, with their segments"]
    node.start()
    logged(node, f"{gone} messages before offset {gone} are gone")
    assert described(node)["missing"] == gone
    assert consume_all(node, "t", "c", set(bodies[gone:])) == set(bodies[gone:])


def test_segments_that_retention_has_removed_are_not_missed(daemon):
    """After a kill right after it, and with a journal that was compacted; those that go later are."""
    node = daemon(*LOG)
    bodies = numbered(40, size=200)
    folder = filled(node, bodies)
    first = segments_of(folder)[0]
    assert consume(node, "t", "c", set(bodies[:20]))
    wait_until(lambda: not first.exists())
    node.kill()
    for _ in range(2):
        assert faults_of(folder) == []
        node.start()
        assert described(node)["missing"] == 0
        assert node.stop() == 0
    left = segments_of(folder)
    if len(left) == 1:
        node.start()
        more = numbered(40, "more", size=200)
        filled(node, more)
        assert node.stop() == 0
        left = segments_of(folder)
    left[0].unlink()
    count = int(left[1].stem) - int(left[0].stem)
    assert faults_of(folder) == [f"{count} messages before offset {int(left[1].stem)} are gone, with their segments"]
    node.start()
    assert described(node)["missing"] == count


def test_offsets_do_not_repeat_after_a_stop_a_start_and_a_power_failure(daemon):
    """The newest segment has the size again that the stop recorded: what was written since was not synced."""
    node = daemon("--topic-storage=log")
    folder = filled(node, [b"0", b"1"])
    assert node.stop() == 0
    sizes = {path: path.stat().st_size for path in segments_of(folder)}
    node.start()
    node.post("/pub?topic=t", b"lost")
    node.kill()
    other_boot(node.data_path)
    for path, size in sizes.items():
        os.truncate(path, size)
    node.start()
    assert described(node)["next_offset"] == JUMP
    node.post("/pub?topic=t", b"later")
    assert consume_all(node, "t", "c", {b"0", b"1", b"later"}) == {b"0", b"1", b"later"}
    assert [int(path.stem) for path in segments_of(folder)][-1] == JUMP


def test_the_first_write_after_a_stop_makes_the_manifest_unclean(daemon):
    """So its end cannot be taken for that of other data, whatever the size of the file."""
    node = daemon("--topic-storage=log")
    folder = filled(node, [b"0"])
    assert node.stop() == 0
    clean = (folder / "manifest").read_bytes()
    node.start()
    assert (folder / "manifest").read_bytes() == clean
    node.post("/pub?topic=t", b"1")
    assert (folder / "manifest").read_bytes() != clean
