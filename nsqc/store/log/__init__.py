"""Topics kept in a log: segments, their indexes, cursors of channels and their journal."""
