"""Rates of the consuming tools, compared with the load client and the disk."""
