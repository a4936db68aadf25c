import pytest

from tests.bucket.ceph import Ceph
from tests.bucket.s3 import Server


@pytest.fixture(scope="session")
def ceph(tmp_path_factory):
    """A real store, behind a proxy that injects faults."""
    store = Ceph(tmp_path_factory.mktemp("ceph"))
    server = Server(behind=store.port)
    yield server
    server.close()
    store.close()
