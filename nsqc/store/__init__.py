"""Messages and where they rest: memory, heaps, disk; knows no client."""
