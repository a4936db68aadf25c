# Reads the records of a disk queue without consuming them. The functions are for Python: see the .pyi.
