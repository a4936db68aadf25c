# Commands that carry bodies, from Python's bytes.
