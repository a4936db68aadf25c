"""Errors between Spark and the logs of nsqd. Each text names node and topic."""

from __future__ import annotations


class LogError(RuntimeError):
    """A log cannot be read."""


class Unreachable(LogError):
    """A node does not answer, or the connection breaks: retrying may help."""


class BadAnswer(LogError):
    """A node's answer is neither records nor the state of a log."""


class NoTopic(LogError):
    """A node does not have the topic."""


class NoLog(LogError):
    """The topic is stored in memory."""


class DataLoss(LogError):
    """Messages needed by the query are no longer in the log; sound: the first offset after them, if known."""

    def __init__(self, text: str, sound: int | None = None) -> None:
        super().__init__(text)
        self.sound = sound
