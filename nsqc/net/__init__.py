"""Sockets: addresses, listeners, TLS, connection limits."""
