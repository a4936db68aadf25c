"""Reads a client's certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def common_name(certificate: ssl._PeerCertRetDictType) -> str:
    """The subject's common name; empty without one."""
    for attributes in certificate.get("subject", ()):
        for attribute in attributes:
            if isinstance(attribute, tuple) and attribute[0] == "commonName":
                return str(attribute[1])
    return ""
