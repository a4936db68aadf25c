"""The options of TLS that imply or exclude each other."""

from __future__ import annotations

from nsqc.net.tls import TlsSettings
from nsqc.options.declared import FLAGS, OptionError, Options
from nsqc.options.values import TLS_NOT_REQUIRED, TLS_REQUIRED

POLICIES = ("", *FLAGS["tls_client_auth_policy"].choices)


def offered(options: Options) -> TlsSettings | None:
    """The settings if a certificate or a key is given, as in nsqd; otherwise, TLS is not offered."""
    if not options.tls_cert and not options.tls_key:
        return None
    return TlsSettings(options.tls_cert, options.tls_key, options.tls_root_ca_file, options.tls_client_auth_policy,
                       options.tls_min_version)


def settle(options: Options) -> Options:
    """Adds implied options. Raises OptionError."""
    if options.tls_client_auth_policy not in POLICIES:
        raise OptionError(
            f"--tls-client-auth-policy is require or require-verify, not {options.tls_client_auth_policy}")
    if bool(options.tls_cert) != bool(options.tls_key):
        given, missing = ("--tls-cert", "--tls-key") if options.tls_cert else ("--tls-key", "--tls-cert")
        raise OptionError(f"failed to build TLS config - {given} is given without {missing}")
    if options.tls_client_auth_policy and options.tls_required == TLS_NOT_REQUIRED:
        options = options.replace(tls_required=TLS_REQUIRED)
    if options.tls_required != TLS_NOT_REQUIRED and not offered(options):
        raise OptionError("cannot require TLS client connections without TLS key and cert")
    return options
