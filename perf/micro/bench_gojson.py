"""IDENTIFY bodies by the rules of Go's encoding/json (nsqc.wire.gojson)."""

import json

from nsqc.wire.gojson import BOOL, INT64, STRING, decode_struct
from perf.micro import timing
from perf.micro.timing import Part, Row, Size

TITLE = "gojson: nanoseconds a body"
VALUES = {"client_id": "worker-1", "hostname": "host.example", "user_agent": "go-nsq/1.1.0",
          "feature_negotiation": True, "heartbeat_interval": 30000, "output_buffer_size": 16384,
          "output_buffer_timeout": 250, "tls_v1": False, "snappy": False, "deflate": False, "deflate_level": 6,
          "sample_rate": 0, "msg_timeout": 60000}
KINDS = {name: STRING if isinstance(value, str) else BOOL if isinstance(value, bool) else INT64
         for name, value in VALUES.items()}


def bench(size: Size) -> list[Row]:
    """A client's usual body, alone and among 64 KiB of unknown fields; and megabytes of one field, repeated or escaped,
    whose cost must grow with their size only."""
    small = json.dumps(VALUES).encode()
    rows = []
    for title, body, many in (("a client's", small, 10_000),
                              ("with 64 KiB unknown", small[:-1] + b', "x": [' + b"[1], " * 13_000 + b"0]}", 100),
                              ("5 MB of one field", b"{" + b'"snappy":true,' * 350_000 + b'"snappy":true}', 1),
                              ("5 MB of escapes", b'{"client_id":"' + b"\\u0041" * 800_000 + b'"}', 1)):
        bodies = [body] * size.of(many)

        def own(bodies=bodies):
            return lambda: timing.exhaust(decode_struct(body, KINDS) for body in bodies)

        def plain(bodies=bodies):
            return lambda: timing.exhaust(map(json.loads, bodies))

        rows.append(timing.compare(Part(title, own, len(bodies)), Part("json.loads", plain, len(bodies)), size))
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
