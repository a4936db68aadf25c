"""What can go wrong between Spark and the logs of nsqd. Each text says which node and topic."""

from __future__ import annotations


class LogError(RuntimeError):
    """A log cannot be read."""


class Unreachable(LogError):
    """A node does not answer, or breaks off: it may do so later."""


class BadAnswer(LogError):
    """A node answers something else than records or the state of a log."""


class NoTopic(LogError):
    """A node does not have the topic."""


class NoLog(LogError):
    """The topic is kept in memory."""


class DataLoss(LogError):
    """Messages that the query needs are not in the log any more; sound: the first offset behind them, if known."""

    def __init__(self, text: str, sound: int | None = None) -> None:
        super().__init__(text)
        self.sound = sound
