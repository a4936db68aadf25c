"""Where topics store messages."""

import pytest


@pytest.fixture(params=["memory", "log"])
def node(request, daemon):
    """A daemon whose topics store messages in memory, and one whose topics have logs."""
    return daemon(f"--topic-storage={request.param}")
