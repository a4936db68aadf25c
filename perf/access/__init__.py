"""The cost of access rules."""
