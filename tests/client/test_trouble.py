"""Wrong ports, untrusted or missing certificates, missing files: one clear text each, the same in both clients.
Producers raise it; consumers log it, and raise it if it is permanent and no other nsqd is there."""

import asyncio
import logging
import ssl

import pytest

from nsqc.client import BadAddress, ClientError, Consumer, LookupFailed, Producer, aio, tls
from nsqc.client.errors import BadTlsFile, ConnectError, NotOffered, TlsRefused, WrongPort
from nsqc.client.lookup import port_hint, reason
from nsqc.wire.outside import Service
from tests.client.conftest import address
from tests.client.test_consumer import publish
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port, kept


def publishing(**options) -> str:
    """The exception of a publish, which must be the same in both clients."""
    def blocking():
        with Producer(retries=0, **options) as producer:
            producer.publish("t", b"x")

    async def on_a_loop():
        async with aio.Producer(retries=0, **options) as producer:
            await producer.publish("t", b"x")
    texts = []
    for call in (blocking, lambda: asyncio.run(on_a_loop())):
        with pytest.raises(ClientError) as caught:
            call()
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    return texts[0]


def consuming(caplog, **options) -> str:
    """The log line of a consumer, which must be the same in both clients."""
    def blocking():
        with Consumer("t", "c", **options) as consumer:
            wait_until(lambda: consumer.get(0.01) is None and caplog.records)

    async def on_a_loop():
        async with aio.Consumer("t", "c", **options) as consumer:
            while not caplog.records:
                await consumer.get(0.01)
    texts = []
    for call in (blocking, lambda: asyncio.run(on_a_loop())):
        caplog.clear()
        call()
        texts.append(caplog.records[0].getMessage())
        assert caplog.records[0].levelno == logging.WARNING
    assert texts[0] == texts[1]
    return texts[0].removesuffix("; trying again")


def refused(kind, **options) -> str:
    """The permanent error that a consumer raises, which must be the same in both clients, also at the next try."""
    def blocking():
        with Consumer("t", "c", backoff=0.01, **options) as consumer:
            for _ in range(2):
                with pytest.raises(kind) as caught:
                    consumer.get(WAIT_SECONDS)
                texts.append(str(caught.value))

    async def on_a_loop():
        async with aio.Consumer("t", "c", backoff=0.01, **options) as consumer:
            for _ in range(2):
                with pytest.raises(kind) as caught:
                    await consumer.get(WAIT_SECONDS)
                texts.append(str(caught.value))
    texts: list[str] = []
    blocking()
    asyncio.run(on_a_loop())
    assert len(set(texts)) == 1
    return texts[0]


@pytest.fixture
def guarded(daemon, certs):
    """A daemon that requires client certificates."""
    return daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", f"--tls-root-ca-file={certs}/ca.pem",
                  "--tls-client-auth-policy=require-verify")


def test_ports_of_lookups(daemon):
    node, nobody = daemon(), free_port()
    for port, text in ((node.http_port, "this is nsqd's HTTP port, not nsqlookupd's HTTP port (4161 by default)"),
                       (node.tcp_port, "this is nsqd's TCP port, not nsqlookupd's HTTP port (4161 by default)"),
                       (nobody, "Connection refused; nsqlookupd's HTTP port is 4161 by default")):
        assert publishing(nsqlookupd=f"127.0.0.1:{port}") == f"nsqlookupd 127.0.0.1:{port}: {text}"
        with pytest.raises(LookupFailed), Consumer("t", "c", nsqlookupd=f"127.0.0.1:{port}") as consumer:
            consumer.get(60)
    assert publishing(nsqlookupd=f"https://127.0.0.1:{node.http_port}/lookup").endswith("/lookup: it does not speak TLS")
    with pytest.raises(BadAddress, match="such as localhost:4161"):
        Producer(nsqlookupd="localhost")


def test_ports_of_nsqd(daemon, caplog):
    node = daemon()
    text = f"this is nsqd's HTTP port; its TCP port is {node.tcp_port}"
    where = f"127.0.0.1:{node.http_port}"
    assert publishing(nsqd=where) == f"given up after 1 try: {where}: {text}"
    assert refused(WrongPort, nsqd=where) == f"{where}: {text}"
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    nobody = f"127.0.0.1:{free_port()}"
    assert publishing(nsqd=nobody) == f"given up after 1 try: {nobody}: Connection refused"


def test_a_certificate_that_is_not_trusted(guarded, certs):
    where = address(guarded)
    text = f"{where}: certificate verify failed: self-signed certificate; only %s are trusted: give others by ca_file (--tls-ca)"
    for given, trusted in ((True, "the system's authorities"), (tls(ca_file=f"{certs}/ca.pem"), f"the authorities in {certs}/ca.pem")):
        assert publishing(nsqd=where, tls=given) == f"given up after 1 try: {text % trusted}"
        assert refused(TlsRefused, nsqd=where, tls=given) == text % trusted


def test_a_certificate_for_another_name(daemon, certs):
    """A client certificate names no host."""
    node = daemon(f"--tls-cert={certs}/client.pem", f"--tls-key={certs}/client.key")
    found = publishing(nsqd=address(node), tls=tls(ca_file=f"{certs}/ca.pem"))
    assert f"{address(node)}: certificate verify failed: it is for another name: " in found


def test_a_missing_client_certificate(guarded, certs, caplog):
    where, trusting = address(guarded), tls(ca_file=f"{certs}/server.pem")
    found = publishing(nsqd=where, tls=trusting)
    assert "may require a client certificate: give one by cert_file and key_file (--tls-cert, --tls-key)" in found
    assert "may require a client certificate" in consuming(caplog, nsqd=where, tls=trusting)
    fine = tls(ca_file=f"{certs}/server.pem", cert_file=f"{certs}/client.pem", key_file=f"{certs}/client.key")
    with Producer(where, tls=fine) as producer:
        producer.publish("t", b"x")


@pytest.mark.parametrize("alert,text", [
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "it requires a client certificate: give one by cert_file"),
    ("TLSV1_ALERT_UNKNOWN_CA", "it does not accept the client certificate"), ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("INTERNAL_ERROR", "something else"),
])
def test_alerts_of_other_servers(alert, text):
    error = ssl.SSLError(1, "something else")
    error.reason = alert
    assert reason(error).startswith(text)


@pytest.mark.parametrize("files,text", [
    ({"ca_file": "nothing.pem"}, "nothing.pem"), ({"cert_file": "nothing.pem"}, "nothing.pem"),
    ({"cert_file": "{certs}/client.pem", "key_file": "nokey.pem"}, "nokey.pem"), ({"ca_file": __file__}, "test_trouble.py: no certificate in PEM"),
    ({"cert_file": "{certs}/client.pem", "key_file": "{certs}/ca.key"}, "client.pem and .*ca.key: the key does not belong to the certificate"),
    ({"cert_file": __file__}, "test_trouble.py: not a certificate and its key in PEM format"),
])
def test_errors_name_the_file(certs, files, text):
    with pytest.raises(BadTlsFile, match=text):
        tls(**{name: file.format(certs=certs) for name, file in files.items()})


def test_a_line_when_a_connection_is_back(daemon, caplog):
    node = daemon(kept())
    where = address(node)

    def said(text):
        return any(record.getMessage() == f"{where}: {text}" for record in caplog.records)
    with Consumer("t", "c", where, backoff=0.02) as consumer:
        wait_until(lambda: consumer.get(0.01) is None and consumer.stats().connections[0].is_connected)
        node.kill()
        wait_until(lambda: consumer.get(0.01) is None and "trying again" in caplog.text)
        node.start()
        wait_until(lambda: consumer.get(0.01) is None and said("connected again"))


def test_a_hint_for_default_ports_only():
    refused = ConnectionRefusedError(111, "Connection refused")
    assert port_hint(refused, "h:4161", Service.NSQD_TCP) == "; nsqd's TCP port is 4150 by default"
    for wanted, where in ((Service.NSQD_TCP, "h:4150"), (Service.NSQD_TCP, "h:9000"), (Service.LOOKUPD_HTTP, "h:4161"),
                          (Service.NSQD_TCP, "/run/x.sock"), (Service.LOOKUPD_HTTP, "https://h/lookup")):
        assert port_hint(refused, where, wanted) == ""
    assert port_hint(ConnectError("x"), "h:4161", Service.NSQD_TCP) == ""


def test_options_that_nsqd_does_not_offer(daemon, certs):
    node = daemon()
    assert refused(NotOffered, nsqd=address(node), tls=tls(ca_file=f"{certs}/ca.pem")) == f"{address(node)}: nsqd does not offer tls"


@pytest.mark.parametrize("kind", [Consumer, aio.Consumer])
def test_a_permanent_error_of_one_nsqd_does_not_stop_the_others(daemon, kind):
    """An nsqd that is down may come back, one with the wrong port will not deliver: only without both is an error raised."""
    good, wrong = daemon(kept()), f"127.0.0.1:{daemon().http_port}"
    publish(good, b"a")

    async def run():
        async with Adapter(kind("t", "c", [wrong, address(good)], backoff=0.01)) as consumer:
            message = await consumer.get(WAIT_SECONDS)
            assert message.body == b"a"
            message.finish()
            good.kill()
            for _ in range(10):
                assert await consumer.get(0.05) is None
            good.start()
            publish(good, b"b")
            message = await consumer.get(WAIT_SECONDS)
            assert message.body == b"b"
            message.finish()
    asyncio.run(run())


class Adapter:
    """Awaitable calls of either consumer."""

    def __init__(self, consumer):
        self.consumer = consumer

    async def get(self, timeout):
        return await self.consumer.get(timeout) if isinstance(self.consumer, aio.Consumer) else self.consumer.get(timeout)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.consumer.close() if isinstance(self.consumer, aio.Consumer) else self.consumer.close()
