"""What can go wrong between a client and nsqd. All of it is a ClientError."""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors of nsqc.client."""


class ConnectError(ClientError, OSError):
    """The connection cannot be made, or has ended. Another try, or another nsqd, may do."""


class NoAnswer(ConnectError):
    """nsqd has not answered in time."""


class Closed(ConnectError):
    """The connection was closed by this side already."""


class Refused(ClientError):
    """nsqd answered with an error. address: of that nsqd; text: the answer; code: its first word, such as
    E_BAD_TOPIC."""

    def __init__(self, address: str, text: str):
        super().__init__(address, text)
        self.address, self.text = address, text
        self.code = text.split(" ", 1)[0]

    def __str__(self) -> str:
        return f"{self.address}: {self.text}"


class AuthError(Refused):
    """The secret is missing or was refused, or it does not allow the command."""


class PublishFailed(ClientError):
    """All tries at all nsqd have failed; the text names the last cause."""


class BadMessage(ClientError, ValueError):
    """A message that nsqd would refuse; nothing was sent. index: its place among those given."""

    def __init__(self, index: int, text: str):
        super().__init__(index, text)
        self.index, self.text = index, text

    def __str__(self) -> str:
        return f"message {self.index}: {self.text}"


class BadName(ClientError, ValueError):
    """No name for a topic or channel."""


class BadAddress(ClientError, ValueError):
    """Neither HOST:PORT nor the path of a unix socket. No other try would help."""


class LookupFailed(ClientError, OSError):
    """No nsqlookupd has answered; the text names the last cause."""


def refusal(address: str, text: str) -> Refused:
    """The error for the text of an error frame."""
    kind = AuthError if text.startswith(("E_AUTH_", "E_UNAUTHORIZED")) else Refused
    return kind(address, text)
