"""Queues on disk."""
