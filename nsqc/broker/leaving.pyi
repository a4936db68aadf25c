"""Messages that leave a channel unfinished: expired, overflowed, dead. See the .pxd."""


def origin_node(address: str, node_id: int) -> bytes:
    """The fields of the node."""
