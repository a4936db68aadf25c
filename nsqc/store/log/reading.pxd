# Finds records in a segment by offset or time. For Python only: see the .pyi.
