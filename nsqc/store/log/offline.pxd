# Reads segments for a check. For Python only: see the .pyi.
