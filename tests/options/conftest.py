"""Config files."""

import pytest


@pytest.fixture
def config(tmp_path):
    """Writes a config file: config(text) -> its path."""
    def write(text: str) -> str:
        path = tmp_path / "nsqd.cfg"
        path.write_text(text)
        return str(path)

    return write
