"""Errors that Python code returns to a client."""

from __future__ import annotations


class ClientError(Exception):
    """A V2 error frame: a code such as E_BAD_BODY and a description. The connection closes after it."""

    def __init__(self, code: str, description: str):
        super().__init__(f"{code} {description}")
        self.code = code
