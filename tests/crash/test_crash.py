"""`make crash` in short.

Slow: each round loads, kills, starts and checks a daemon.
"""

from __future__ import annotations

import pytest

from tests.crash.rounds import rounds
from tests.crash.run import FLAGS

ROUNDS = 15     # of each case; the long run is `make crash`


@pytest.mark.parametrize(("storage", "flags", "count"), [
    ("log", ("--log-sync=write",), ROUNDS), ("log", ("--log-sync=fsync",), ROUNDS), ("memory", (), 3)],
    ids=["write", "fsync", "memory"])
def test_promises_hold_after_kills(tmp_path, storage, flags, count):
    with rounds(tmp_path, 7, storage, *FLAGS[storage], *flags) as run:
        for _ in range(count):
            run.round()
    assert run.totals["delivered"] and (storage == "memory" or (run.totals["finished"] and run.totals["requeued"]))
