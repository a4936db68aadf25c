"""The disk queues of one daemon: opened by name, ticked together, closed together."""
