"""The executable's entry point."""

import os

import unpacked

from nsqc.cli import main
from nsqc.process.machine import is_unpacked

# Distributions' locations of certificate authorities, other than OpenSSL's default.
OPENSSL_PLACE = "/usr/lib/ssl/certs"
AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
               "/etc/ssl/cert.pem")


def leave_with_the_parent():
    """The one-file executable is two processes: if the first, whose id is known, is killed, the daemon stops.

    Otherwise it would keep running, and hold its ports and data path.
    """
    import ctypes
    import signal

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM, 0, 0, 0)


def find_authorities():
    """The bundled OpenSSL knows Debian's location; on other systems it is set to theirs."""
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys() and not os.path.isdir(OPENSSL_PLACE):
        place = next(filter(os.path.exists, AUTHORITIES), None)
        if place is not None:
            os.environ["SSL_CERT_FILE"] = place


def run_unpacked():
    """Runs as the second process of the one-file executable."""
    first = os.getppid()
    leave_with_the_parent()
    unpacked.lock()
    unpacked.remove_leftovers()
    try:
        main()
    finally:
        unpacked.remove_with(first)


find_authorities()
if is_unpacked():
    run_unpacked()
else:
    main()
