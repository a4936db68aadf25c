"""Bytes to commands and frames to bytes; knows no socket and no topic."""
