"""Restarts under publishers that connect for each message while a manager keeps the sockets: none is refused."""

import http.client
import random
import socket
import threading
import time
from collections import Counter

from tests.support.daemon import wait_until
from tests.support.manager import handed, listening
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context, make_certificates

RESTARTS = 4
THREADS = 3  # of each kind
BODY = b"hello"


def publish_http(port: int, pause_s: float) -> None:
    """Like most programs: head and body in separate writes."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    client.connect()
    time.sleep(pause_s)
    client.request("POST", "/pub?topic=http", BODY)
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"OK")
    client.close()


def publish_https(port: int, pause_s: float, context) -> None:
    client = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_SECONDS, context=context)
    client.request("POST", "/pub?topic=https", BODY)
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"OK")
    client.close()


def publish_tcp(port: int, pause_s: float) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as client:
        client.sendall(b"  V2")
        time.sleep(pause_s)
        client.sendall(b"IDENTIFY\n\x00\x00\x00\x02{}")
        assert client.recv(100)[8:] == b"OK"
        client.sendall(b"PUB tcp\n" + len(BODY).to_bytes(4, "big") + BODY)
        assert client.recv(100)[8:] == b"OK"


def test_restarts_refuse_and_reset_nobody(daemon, tmp_path):
    """Slow: it restarts under publishers that connect for each message."""
    certificates = make_certificates(tmp_path)
    sockets = [listening() for _ in range(3)]
    ports = [sock.getsockname()[1] for sock in sockets]
    context = client_context()
    kinds = {"tcp": publish_tcp, "http": publish_http,
             "https": lambda port, pause_s: publish_https(port, pause_s, context)}
    node = daemon(f"--tls-cert={certificates}/server.pem", f"--tls-key={certificates}/server.key",
                  **handed(sockets, ":".join(kinds)))
    stop = threading.Event()
    published: Counter = Counter()
    failures: list[str] = []
    lock = threading.Lock()

    def work(name: str, port: int, seed: int) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            try:
                # Some wait first: a stop may begin at any moment.
                kinds[name](port, chance.choice((0, 0, 0, 0.02, 0.05)))
                with lock:
                    published[name] += 1
            except (OSError, AssertionError, http.client.HTTPException) as error:
                failures.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=work, args=(name, port, number))
               for name, port in zip(kinds, ports, strict=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        for number in range(RESTARTS + 1):
            wait_until(lambda number=number: failures or min(published[name] for name in kinds) > 20 * (number + 1))
            if number < RESTARTS:
                assert node.stop() == 0
                node.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert {name: node.stats(name)["depth"] for name in kinds} == published
    for sock in sockets:
        sock.close()
