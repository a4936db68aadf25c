"""The process itself: descriptors, terminal, errors that nobody has caught."""
