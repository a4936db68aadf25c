"""Identifies the service at an address whose answer is unexpected."""

from __future__ import annotations

import ssl
import time

from nsqc.client.connection import Connection
from nsqc.client.errors import Ended, WrongPort, not_nsqd
from nsqc.client.options import Options
from nsqc.client.stream import dial
from nsqc.wire.answers import MOST_BYTES, PROBE, Answer, Service, probed

LONGEST_S = 2.0     # explaining an error must not delay it much
READ_BYTES = 4096


def connect(address: str, options: Options) -> Connection:
    """Connects to an nsqd. Raises ClientError, whose text names the service if it is another one."""
    try:
        return Connection.with_options(address, options)
    except (Ended, WrongPort):
        found = probe(address, options.timeout)
        if found is None or found.service is Service.NSQD_TCP:
            raise
        raise not_nsqd(address, found) from None


def probe(address: str, timeout: float) -> Answer | None:
    """The service at HOST:PORT, or at the path of a unix socket; None: unknown."""
    timeout = min(timeout, LONGEST_S)
    try:
        data = asked(address, timeout)
        if data:
            return probed(data)
        # TLS servers may close a connection silently if it does not begin with a handshake.
        return Answer(Service.TLS) if speaks_tls(address, timeout) else None
    except (OSError, ValueError):
        return None


def asked(address: str, timeout: float) -> bytes:
    """The answer to PROBE; empty if the connection ends without one. Raises OSError (TimeoutError if no answer arrives
    in time), BadAddress."""
    deadline = time.monotonic() + timeout
    received = bytearray()
    with dial(address, timeout) as sock:
        sock.sendall(PROBE)
        while len(received) < MOST_BYTES:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = sock.recv(READ_BYTES)
            except ConnectionResetError:
                break
            except TimeoutError:
                if not received:
                    raise
                break
            if not data:
                break
            received += data
    return bytes(received)


def speaks_tls(address: str, timeout: float) -> bool:
    """Whether a TLS server answers, with any certificate. Raises OSError, BadAddress."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with dial(address, timeout) as sock:
        try:
            with context.wrap_socket(sock):
                return True
        except ssl.SSLError as error:
            # An alert, such as a demand for a certificate, is TLS, too.
            return "alert" in str(error.reason).lower()
        except TimeoutError:
            return False
