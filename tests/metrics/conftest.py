"""Certificates for the whole run."""

from tests.tcp.conftest import certs

__all__ = ["certs"]
