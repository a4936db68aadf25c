"""The TLS settings of a daemon's options. Apart from the options: the import of ssl is slow."""

from __future__ import annotations

from nsqc.net.tls import TlsSettings
from nsqc.options.declared import Options


def offered(options: Options) -> TlsSettings | None:
    """None: TLS is not offered."""
    if not options.offers_tls:
        return None
    return TlsSettings(options.tls_cert, options.tls_key, options.tls_root_ca_file, options.tls_client_auth_policy,
                       options.tls_min_version)
