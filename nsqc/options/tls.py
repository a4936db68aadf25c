"""The TLS settings of a server's options. Apart from the options: the import of ssl is slow."""

from __future__ import annotations

from nsqc.net.tls import TlsSettings
from nsqc.options.declared import Options, OptionSet


def offered(options: OptionSet) -> TlsSettings | None:
    """None: TLS is not offered."""
    cert, key, least = (options.value(name) for name in ("tls_cert", "tls_key", "tls_min_version"))
    if not (cert or key):
        return None
    clients = (options.tls_root_ca_file, options.tls_client_auth_policy) if isinstance(options, Options) else ("", "")
    return TlsSettings(str(cert), str(key), *clients, int(str(least)))
