"""Reads the folders of logs ahead at a start, on threads."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from nsqc.store.log.recovery import Opened, read_folder


class Looks:
    """Reads folders ahead. take() reads a folder itself unless a thread has begun it."""

    def __init__(self, folders: list[str], power_failed: bool):
        """power_failed: since the last run."""
        self._power_failed = power_failed
        self._answers: dict[str, Future[Opened]] = {folder: Future() for folder in folders}
        self._waiting = deque(self._answers.items())

    def run(self) -> None:
        """For a thread: reads folders until all are read."""
        while self._waiting:
            try:
                folder, answer = self._waiting.popleft()
            except IndexError:
                return  # another thread was faster
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(read_folder(folder, self._power_failed, True))
            except Exception as error:
                answer.set_exception(error)

    def take(self, folder: str) -> Opened:
        """The contents of a folder; read ahead, once only. Raises OSError."""
        answer = self._answers.pop(folder, None)
        return answer.result() if answer and not answer.cancel() else read_folder(folder, self._power_failed, True)
