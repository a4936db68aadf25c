"""The process itself: descriptors, signals, terminal, service manager, uncaught errors."""
