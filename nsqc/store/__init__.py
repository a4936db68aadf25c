"""Messages and where they are kept: in memory, in heaps, on disk. Knows no client."""
