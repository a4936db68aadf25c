"""One client connection of the V2 protocol."""
