"""The options of TLS that imply or exclude each other."""

from __future__ import annotations

from nsqc.options.declared import FLAGS, OptionError, Options
from nsqc.options.values import TLS_NOT_REQUIRED, TLS_REQUIRED

POLICIES = ("", *FLAGS["tls_client_auth_policy"].choices)


def is_offered(options: Options) -> bool:
    """Whether a certificate or a key is given; nsqd asks the same."""
    return bool(options.tls_cert or options.tls_key)


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
    if options.tls_required != TLS_NOT_REQUIRED and not is_offered(options):
        raise OptionError("cannot require TLS client connections without TLS key and cert")
    return options
