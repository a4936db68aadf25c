"""Data paths that anyone may have written: a daemon starts on them, or says why not; it answers, and stops."""

import random

from tests.hostile import logs, queues
from tests.hostile.test_decoders import FIRST, TIMES
from tests.support.counting import consume

CASES = 2 * TIMES
CALLS = ("/stats?format=json&topic={}", "/topic/log?topic={}&segments=true", "/topic/read?topic={}&max_messages=500",
         "/topic/read?topic={}&offset=5&max_bytes=1", "/topic/read?topic={}&time=-1h", "/topic/peek?topic={}",
         "/channel/peek?topic={}&channel=c&max_messages=1000", "/channel/peek?topic={}&channel=c&state=deferred", "/dead/list?topic={}",
         "/metrics", "/readyz")
FAULTS = ("Traceback", "panic", "the daemon fails")
CHANGES = ("/pub?topic={}", "/channel/seek?topic={}&channel=d&to=beginning", "/dead/redrive?topic={}", "/channel/empty?topic={}&channel=d",
           "/topic/empty?topic={}")


def test_data_paths_of_anyone(daemon, tmp_path):
    """NSQC_TEST_FUZZ_SEED=N begins with case N."""
    made = tmp_path / "t.log"
    log, queue = logs.make(made), queues.make(tmp_path)
    for case in range(FIRST, FIRST + CASES):
        rng, folder = random.Random(case), tmp_path / f"case{case}"
        files = {f"l.log/{name}": data for name, data in changed(rng, logs, log).items()} | changed(rng, queues, queue)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        try:
            node = daemon("--topic-storage=log", data_path=folder)
        except AssertionError as error:
            assert "the daemon left with 1:" in str(error), f"case {case}: {error}"
        else:
            use(node, case)
        log_text = folder.with_name(f"{folder.name}.log").read_text(errors="replace")
        assert not any(word in log_text for word in FAULTS), f"case {case}: {log_text[-2000:]}"


def changed(rng, module, files):
    files = dict(files)
    for _ in range(rng.choice([0, 1, 2, 4])):
        module.change(rng, files)
    return files


def use(node, case: int) -> None:
    """Every call is answered."""
    for topic in "l", "t":
        for call in CALLS:
            node.http("GET", call.format(topic))
        consume(node, topic, "c", set(), seconds=0.1)
        for call in CHANGES:
            node.http("POST", call.format(topic), b"new")
    assert node.stop() in (0, 1), f"case {case}"
