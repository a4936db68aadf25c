"""TCP ports that nobody else comes by while a test has nobody listening on them."""

import random
import socket

BELOW_THOSE_GIVEN_OUT = range(10_000, 30_000)  # Linux gives out 32768 and more to whoever asks for any port


def free_port() -> int:
    """A port of 127.0.0.1 that refuses connections until the test has something listen there."""
    choice = random.SystemRandom()
    while True:
        port = choice.choice(BELOW_THOSE_GIVEN_OUT)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def kept() -> str:
    """The flag for a daemon that is to be killed, and perhaps started again, at one address."""
    return f"--tcp-address=127.0.0.1:{free_port()}"
