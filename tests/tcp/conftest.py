"""Certificates for the whole run."""

import pytest

from tests.support.secure import make_certificates


@pytest.fixture(scope="session")
def certs(tmp_path_factory):
    """A folder with server, ca, client and stranger."""
    return make_certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def secure(daemon, certs):
    """Starts daemons that offer TLS."""
    def start(*flags, **more):
        return daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key",
                      "--https-address=127.0.0.1:0", *flags, **more)
    return start
