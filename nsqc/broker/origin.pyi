def origin_node(address: str, node_id: int) -> bytes:
    """The fields of the node."""
