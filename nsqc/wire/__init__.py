"""Parses bytes into commands, and serializes frames. Knows no sockets and no topics."""
