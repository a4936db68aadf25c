"""Commands in this process."""

import pytest

from nsqc.commands.app import run


@pytest.fixture
def nsqc(capsys):
    """nsqc(*words) -> exit code, stdout, stderr."""
    def call(*words) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        return code, *capsys.readouterr()

    return call
