"""Tests of the lookup server."""
