"""Bytes to commands, and frames to bytes. Knows no sockets and no topics."""
