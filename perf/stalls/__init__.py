"""How long the daemon leaves others waiting while it does something large."""
