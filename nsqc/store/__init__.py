"""Storage of messages: in memory, in heaps, on disk. Knows no clients."""
