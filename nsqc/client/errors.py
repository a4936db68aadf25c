"""The errors of nsqc.client, all of them ClientErrors."""

from __future__ import annotations

from nsqc.wire.outside import Answer, Service, wrong_port


class ClientError(Exception):
    """Base of all errors of nsqc.client."""


class ConnectError(ClientError, OSError):
    """The connection failed or has ended. Another try, or another nsqd, may work."""


class Ended(ConnectError):
    """The peer has closed the connection."""


class WrongPort(ConnectError):
    """Something other than nsqd's TCP port answers at the address. found: the service, if known."""

    found: Answer | None = None


class NotOffered(ConnectError):
    """nsqd does not offer a feature that the options ask for: tls or a codec, the last word of the text."""

    @property
    def feature(self) -> str:
        """The feature."""
        return str(self).rpartition(" ")[2]


class TlsRefused(ConnectError):
    """One side does not accept the certificate of the other, or nsqd does not speak TLS."""


class NoAnswer(ConnectError):
    """nsqd did not answer in time."""


class Closed(ConnectError):
    """The connection was already closed on this side."""


class Refused(ClientError):
    """nsqd answered with an error. address: that nsqd; text: its answer; code: the first word, such as E_BAD_TOPIC."""

    def __init__(self, address: str, text: str):
        super().__init__(address, text)
        self.address, self.text = address, text
        self.code = text.split(" ", 1)[0]

    def __str__(self) -> str:
        return f"{self.address}: {self.text}"


class AuthError(Refused):
    """The secret is missing, was refused, or does not permit the command."""


class PublishFailed(ClientError):
    """All attempts have failed; the text names the last cause. acknowledged: messages that nsqd has. unknown: messages
    that were sent, and may have been published. unsent: all others."""

    def __init__(self, text: str, acknowledged: int = 0, unknown: int = 0, unsent: int = 0):
        super().__init__(text, acknowledged, unknown, unsent)
        self.text, self.acknowledged, self.unknown, self.unsent = text, acknowledged, unknown, unsent

    def __str__(self) -> str:
        total = self.acknowledged + self.unknown + self.unsent
        if total > 1:
            return (f"{self.text}; of {total} messages {self.acknowledged} were acknowledged, "
                    f"{self.unknown} may have been published, {self.unsent} were not sent")
        return f"{self.text}; the message may have been published" if self.unknown else self.text


class BadMessage(ClientError, ValueError):
    """A message that nsqd would refuse; nothing was sent. index: its position among the given ones."""

    def __init__(self, index: int, text: str):
        super().__init__(index, text)
        self.index, self.text = index, text

    def __str__(self) -> str:
        return f"message {self.index}: {self.text}"


class BadName(ClientError, ValueError):
    """Not a valid topic or channel name."""


class BadAddress(ClientError, ValueError):
    """Neither HOST:PORT nor the path of a unix socket. Retrying does not help."""


class BadTlsFile(ClientError, OSError):
    """A file given to tls() cannot be read, or has no certificate or key."""


class LookupFailed(ClientError, OSError):
    """No nsqlookupd answered; the text names the last cause."""


class HandlerTimeout(ClientError, TimeoutError):
    """A handler has not returned within handler_timeout; its message is requeued or given up."""


class HandlersStuck(ClientError):
    """Ends a worker: every thread, or task, is stuck in a handler that has exceeded handler_timeout."""


def is_permanent(error: Exception) -> bool:
    """Whether another try at the same nsqd fails likewise until its operator or the options change something."""
    return not isinstance(error, (ConnectError, LookupFailed)) or isinstance(error, (WrongPort, NotOffered, TlsRefused))


def not_nsqd(address: str, found: Answer) -> WrongPort:
    """The exception for an address where another service answers."""
    error = WrongPort(f"{address}: {wrong_port(found, Service.NSQD_TCP)}")
    error.found = found
    return error


def refusal(address: str, text: str) -> Refused:
    """The exception for an error frame."""
    kind = AuthError if text.startswith(("E_AUTH_", "E_UNAUTHORIZED")) else Refused
    return kind(address, text)
