"""TCP ports that no other process gets before a test listens on them."""

import random
import socket

BELOW_EPHEMERAL = range(10_000, 30_000)  # Linux assigns ports from 32768 on to binds of port 0


def free_port() -> int:
    """A port of 127.0.0.1 that refuses connections until the test listens on it."""
    choice = random.SystemRandom()
    while not is_free(port := choice.choice(BELOW_EPHEMERAL)):
        pass
    return port


def is_free(port: int) -> bool:
    """Whether no process listens on a port of 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def kept(kind: str = "tcp") -> str:
    """The flag that keeps the address of a daemon that is killed and started again; kind: tcp or http."""
    return f"--{kind}-address=127.0.0.1:{free_port()}"
