"""Sockets: addresses, listeners, TLS, limits for connections."""
