# What readers by offset or time find in a segment. For Python only: see the .pyi.
