"""TLS contexts for connections to nsqd."""

from __future__ import annotations

import ssl


def tls(ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None,
        verify: bool = True) -> ssl.SSLContext:
    """ca_file: authorities, PEM; by default the system's. cert_file, key_file: the client's certificate, if nsqd asks
    for one. verify=False accepts any server. Raises OSError, ssl.SSLError."""
    context = ssl.create_default_context(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context
