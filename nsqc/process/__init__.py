"""Process-level code: descriptors, signals, terminal, service manager, uncaught errors."""
