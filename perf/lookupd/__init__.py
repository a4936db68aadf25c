"""The lookup server with many nodes."""
