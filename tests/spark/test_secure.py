"""Sink and staging over TLS, compressed and authorised, without Spark.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import pyarrow as pa
import pytest

from nsqc.client import PublishFailed
from nsqc.spark import options, sink, stagelog
from nsqc.spark.stagelog import StageLog, read_place
from nsqc.spark.stager import Stager
from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
from tests.spark.conftest import address
from tests.support.daemon import wait_until
from tests.support.secure import make_certificates

authd = factory(AuthServer)
VALUES = [b"%06d" % number * 20 for number in range(20_000)]


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def secured(daemon, authd, certs):
    return daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--tls-required=tcp-https",
                  f"--auth-http-address={authd().address}")


def publish(where: str, **ways: str) -> None:
    one = sink.Publisher(options.sink({"nsqd": where, "topic": "t", "retries": "0", **ways}), 0)
    try:
        one.publish(pa.RecordBatch.from_pydict({"value": VALUES}))
        one.finish()
    finally:
        one.close()


@pytest.mark.parametrize("compression", ["none", "deflate", "snappy"])
def test_there_and_back(secured, certs, tmp_path, compression):
    ways = {"tls": "true", "tlsCaFile": f"{certs}/server.pem", "compression": compression, "authSecret": "open sesame"}
    publish(address(secured), **ways)
    wanted = options.stream({"nsqd": address(secured), "topic": "t", "channel": "c", "stagingDir": str(tmp_path / "s"), **ways})
    log = StageLog(str(tmp_path / "s"), "t", "c", wanted.segmentBytes, 100_000, wait=0)
    stager = Stager(wanted, log)
    stager.start()
    try:
        wait_until(lambda: log.rows >= len(VALUES) or stager.error, "all rows")
        assert stager.error is None
        found = [value for place in log.places(0, log.rows)
                 for value in stagelog.decode_frames(read_place(place), "t").column(0).to_pylist()]
        assert sorted(found) == VALUES
        client = secured.channel("t", "c")["clients"][0]
        assert (client["tls"], client["deflate"], client["snappy"], client["authed"]) == (
            True, compression == "deflate", compression == "snappy", True)
        wait_until(lambda: secured.channel("t", "c")["in_flight_count"] == 0)
    finally:
        stager.stop()
        log.close()


def test_where_the_driver_is(daemon, tmp_path):
    node = daemon("--enable-experiment=topology-aware-consumption", "--topology-zone=z", "--topology-region=r")
    wanted = options.stream({"nsqd": address(node), "topic": "t", "channel": "c", "stagingDir": str(tmp_path / "s"),
                             "topologyZone": "z", "topologyRegion": "r"})
    log = StageLog(str(tmp_path / "s"), "t", "c", wanted.segmentBytes, 100_000, wait=0)
    stager = Stager(wanted, log)
    stager.start()
    try:
        publish(address(node))
        wait_until(lambda: log.rows >= len(VALUES) or stager.error, "all rows")
        assert node.channel("t", "c")["zone_local_msg_count"] == len(VALUES)
    finally:
        stager.stop()
        log.close()


@pytest.mark.parametrize(("ways", "error", "text"), [
    ({"tls": "true"}, PublishFailed, "certificate verify failed"),
    ({"tls": "true", "tlsVerify": "false"}, options.OptionError, "E_AUTH_REQUIRED .*: give option authSecret$"),
    ({"authSecret": "x"}, options.OptionError, "TLS required.*: give tls=true$"),
    ({"tls": "true", "tlsCaFile": "/nowhere.pem"}, PublishFailed, "TLS cannot be set up"),
])
def test_what_is_missing_is_told(secured, ways, error, text):
    with pytest.raises(error, match=text):
        publish(address(secured), **ways)
