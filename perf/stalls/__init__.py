"""Measures how long the daemon blocks other clients during large operations."""
