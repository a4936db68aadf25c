# Commands that carry bodies, built from Python's bytes.
