"""Daemons with access files."""

import itertools

import pytest

from tests.access.files import EVERYTHING, AccessFile
from tests.httpd.conftest import HttpDaemon


@pytest.fixture
def start(tmp_path):
    """start(*flags) starts daemons and ends them with the test."""
    running = []
    numbers = itertools.count()

    def run(*flags, **more):
        running.append(HttpDaemon(tmp_path / f"data{next(numbers)}", *flags, **more))
        return running[-1]

    yield run
    for node in running:
        node.close()


@pytest.fixture
def access(tmp_path):
    """An access file with the user root, which has every permission."""
    file = AccessFile(tmp_path / "access.toml")
    file.user("root", **EVERYTHING)
    return file.write()
