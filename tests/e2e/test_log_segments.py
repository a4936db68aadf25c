"""A log with thousands of segments: listing, lookup by offset and time, and removal all match the files."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest

from tests.store.log.segments import BASE, FRAMES_AT, STEP, write_log
from tests.support.daemon import Daemon, wait_until

COUNT = 3000        # segments, of two messages each
GAP = 2000          # the number of one that is missing
LOG = ("--topic-storage=log", "--log-retain-time=800000h")


@pytest.fixture
def node(daemon, tmp_path) -> Daemon:
    data = tmp_path / "node"
    data.mkdir()
    written = write_log(data / "t.log", ((2 * number, 2) for number in range(COUNT)))
    for segment in written[::2]:
        os.truncate(segment.path, segment.position)         # without its index
    written[GAP].path.unlink()
    channels = [{"name": name, "paused": False} for name in ("a", "b")]
    (data / "nsqd.dat").write_text(json.dumps({
        "topics": [{"name": "t", "paused": False, "channels": channels}], "version": "1.3.0"}))
    (data / "nsqc.ids.dat").write_text(json.dumps({"reached_unit": 0, "stopped": True, "boot_id": ""}))
    node = daemon(*LOG, data_path=data)
    node.segments = [[segment.first, segment.end, segment.position - FRAMES_AT, f"{segment.salt:016x}"]
                     for number, segment in enumerate(written) if number != GAP]
    return node


def described(node: Daemon, more: str = "") -> dict[str, object]:
    status, body = node.http("GET", f"/topic/log?topic=t{more}")
    assert status == 200, body
    return json.loads(body)


def offset_at(node: Daemon, time_ns: int) -> int:
    status, line = node.http("GET", f"/topic/read?topic=t&time={time_ns}&max_messages=1")
    assert status == 200
    return json.loads(line)["offset"] if line else -1


def test_all_are_listed(node):
    known = described(node, "&segments=true")
    assert known["segment_list"] == node.segments
    assert known["bytes"] == sum(length for _, _, length, _ in node.segments)
    assert (known["segments"], known["missing"]) == (COUNT - 1, 2)
    assert (known["first_offset"], known["next_offset"]) == (0, 2 * COUNT)
    assert (known["first_time"], known["last_time"]) == (BASE, BASE + (2 * COUNT - 1) * STEP)
    assert "segment_list" not in described(node)
    node.post("/pub?topic=t", b"new")
    known = described(node, "&segments=true")
    assert known["segment_list"][-1][1] == known["next_offset"] == 2 * COUNT + 1


def test_each_is_found_by_time(node):
    for offset in (0, 1, 2, 777, 2 * GAP - 1, 2 * GAP + 2, 2 * COUNT - 2, 2 * COUNT - 1):
        assert offset_at(node, BASE + offset * STEP) == offset
        assert offset_at(node, BASE + offset * STEP - STEP // 2) == offset
    for missing in (2 * GAP, 2 * GAP + 1):
        assert offset_at(node, BASE + missing * STEP) == 2 * GAP + 2
    assert offset_at(node, BASE + 2 * COUNT * STEP) == -1
    text = datetime.fromtimestamp((BASE + 2 * GAP * STEP) // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert node.http("POST", f"/channel/seek?topic=t&channel=a&to={text}")[0] == 200
    place = described(node)["channels"][0]
    assert (place["position"], place["lag_messages"]) == (2 * GAP + 2, 2 * COUNT - 2 * GAP - 2)


def test_many_are_removed(node):
    """A few hundred per call: each listing matches the remaining files, and the missing segment is forgotten."""
    for channel in ("a", "b"):
        node.post(f"/channel/empty?topic=t&channel={channel}")
    assert node.http("PUT", "/topic/rules?topic=t", b'{"retain_time": "1s"}')[0] == 200
    left = node.segments
    seen = set()

    def gone() -> bool:
        known = described(node, "&segments=true")
        count = known["segments"]
        seen.add(count)
        assert known["segment_list"] == left[-count:] and known["first_offset"] == left[-count][0]
        assert known["missing"] == (2 if left[-count][0] < 2 * GAP else 0)
        assert known["bytes"] == sum(length for _, _, length, _ in left[-count:])
        assert known["first_offset"] <= offset_at(node, 1)      # more may be removed between the two calls
        return count == 1

    wait_until(gone, "all segments but the last to be removed")
    assert len(seen) > 2
    wait_until(lambda: [path.name for path in (node.data_path / "t.log").glob("*.log")] == [f"{2 * COUNT - 2:020}.log"],
               "their files to be removed")
