"""The staging log alone: states after a crash, retention, locking."""

import json
import os

import pyarrow as pa
import pytest

from nsqc.spark import stagelog
from nsqc.spark.stagelog import StageError, StageLog, read_place

NODE = "127.0.0.1:4150"


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([
        pa.array([b"body %d" % number for number in numbers], pa.binary()),
        pa.array([f"{number:016x}" for number in numbers]),
        pa.array(numbers, pa.timestamp("us", tz="UTC")),
        pa.array([1] * len(numbers), pa.int32()),
    ], schema=stagelog.STORED)


def opened(folder, segment_bytes=1 << 20, **more) -> StageLog:
    return StageLog(str(folder), "t", "c", segment_bytes, wait=0, **more)


def fill(stage: StageLog, *counts: int) -> None:
    for count in counts:
        first = stage._written
        stage.append(NODE, batch(*range(first, first + count)))
    stage.sync()


def values(stage: StageLog, start: int, end: int) -> list[bytes]:
    found = []
    for place in stage.places(start, end):
        rows = stagelog.decode_frames(read_place(place), "t").column(0).to_pylist()
        found += rows[max(start - place.first, 0):end - place.first]
    return found


def numbered(start: int, end: int) -> list[bytes]:
    return [b"body %d" % number for number in range(start, end)]


def test_rows_are_found_by_number_over_segments_and_restarts(tmp_path):
    stage = opened(tmp_path, 4096)
    fill(stage, *[7] * 60)
    assert stage.rows == 420 and len(list(tmp_path.glob("*.seg"))) > 5
    name = stage.uuid
    stage.close()
    stage = opened(tmp_path, 4096)
    assert (stage.uuid, stage.rows) == (name, 420)
    for start, end in ((0, 420), (3, 4), (6, 8), (100, 333), (419, 420), (5, 5)):
        assert values(stage, start, end) == numbered(start, end)
    fill(stage, 10)
    assert values(stage, 415, 430) == numbered(415, 430)
    stage.close()


def test_a_frame_tells_topic_and_nsqd():
    parts, length = stagelog.encode(5, NODE, batch(1, 2))
    data = b"".join(bytes(part) for part in parts)
    assert len(data) == length and length % 8 == 0
    rows = stagelog.decode_frames(data, "topic").to_pylist()
    assert rows[1] | {"timestamp": None} == {"value": b"body 2", "topic": "topic", "id": f"{2:016x}",
                                             "timestamp": None, "attempts": 1, "nsqd": NODE}


@pytest.mark.parametrize("at", [0, 4, 9, 30, 60, 200, -1])
def test_one_wrong_bit_is_noticed(at):
    data = bytearray(b"".join(bytes(part) for part in stagelog.encode(0, NODE, batch(*range(9)))[0]))
    data[at] ^= 4
    with pytest.raises(stagelog.BadFrame):
        stagelog.decode_frames(bytes(data), "t")


def test_a_torn_end_is_cut_off_wherever_it_is_torn(tmp_path):
    stage = opened(tmp_path)
    fill(stage, 3, 4)
    end = stage.places(0, 3)[0].offset + stage.places(0, 3)[0].length
    stage.close()
    path = next(tmp_path.glob("*.seg"))
    whole = path.read_bytes()
    for size in (end, end + 1, end + 23, end + 24, end + 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        stage = opened(tmp_path)
        assert stage.rows == 3
        fill(stage, 2)
        assert values(stage, 0, 5) == numbered(0, 5)
        stage.close()


def test_zeros_at_the_end_are_torn_too(tmp_path):
    stage = opened(tmp_path)
    fill(stage, 3)
    stage.close()
    with next(tmp_path.glob("*.seg")).open("ab") as file:
        file.write(bytes(5000))
    assert opened(tmp_path).rows == 3


def test_a_torn_head_of_a_segment_is_made_anew(tmp_path):
    stage = opened(tmp_path, 4096)
    fill(stage, *[9] * 20)
    stage.close()
    (tmp_path / f"{180:020d}.seg").write_bytes(b"NSQC")
    stage = opened(tmp_path, 4096)
    assert stage.rows == 180
    fill(stage, 5)
    stage.close()
    assert values(opened(tmp_path, 4096), 0, 185) == numbered(0, 185)


def test_damage_before_sound_frames_is_no_torn_end(tmp_path):
    stage = opened(tmp_path)
    fill(stage, 3, 4, 5)
    place = stage.places(3, 7)[0]
    stage.close()
    path = next(tmp_path.glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[place.offset + 50] ^= 1
    path.write_bytes(data)
    with pytest.raises(StageError, match=r"damaged at offset .*onBadRecord=skip"):
        opened(tmp_path)
    assert opened(tmp_path, skip_bad=True).rows == 3


def test_a_missing_segment_is_damage(tmp_path):
    stage = opened(tmp_path, 4096)
    fill(stage, *[9] * 60)
    stage.close()
    sorted(tmp_path.glob("*.seg"))[2].unlink()
    with pytest.raises(StageError, match="are missing"):
        opened(tmp_path, 4096)


def test_released_segments_go_but_the_newest_rows_stay(tmp_path):
    stage = opened(tmp_path, 4096, keep_rows=100)
    fill(stage, *[10] * 100)
    before = stage.live_bytes
    stage.release(500)
    assert 0 < stage.first <= 500 and stage.live_bytes < before
    stage.release(1000)
    assert 800 < stage.first <= 900 and stage.live_bytes == 0
    assert sum(batch.num_rows for _, batch in stage.newest(100)) >= 100
    stage.close()
    stage = opened(tmp_path, 4096, keep_rows=100)
    assert (stage.released, stage.rows) == (1000, 1000)
    stage.close()


def test_what_is_released_is_never_more_than_what_is_there(tmp_path):
    stage = opened(tmp_path)
    fill(stage, 5)
    stage.release(3)
    stage.close()
    path = tmp_path / "log.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"released": 99}))
    assert opened(tmp_path).released == 5


def test_one_query_at_a_time(tmp_path):
    stage = opened(tmp_path)
    with pytest.raises(StageError, match="in use by another query"):
        opened(tmp_path)
    stage.close()
    opened(tmp_path).close()


def test_a_folder_belongs_to_one_channel(tmp_path):
    opened(tmp_path).close()
    with pytest.raises(StageError, match="belongs to topic t, channel c"):
        StageLog(str(tmp_path), "t", "d", 4096, wait=0)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}'])
def test_a_log_json_that_says_nothing_is_refused(tmp_path, text):
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(StageError, match=r"log\.json is not readable"):
        opened(tmp_path)


def test_segments_without_their_log_json_are_refused(tmp_path):
    stage = opened(tmp_path)
    fill(stage, 1)
    stage.close()
    (tmp_path / "log.json").unlink()
    with pytest.raises(StageError, match="missing"):
        opened(tmp_path)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    """A limit on the size of files stands for the full disk: the write stops half-way."""
    import resource
    import signal

    stage = opened(tmp_path)
    fill(stage, 100)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (stage._size + 1000, hard))
        with pytest.raises(OSError, match="File too large"):
            stage.append(NODE, batch(*range(100, 200)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert os.path.getsize(stage._path) == stage._size
    fill(stage, 50)
    stage.close()
    assert values(opened(tmp_path), 0, 150) == numbered(0, 150)
