"""Log-backed topics: segments, their indexes, cursors of channels and their journal."""
