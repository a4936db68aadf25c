# Looks at the records of a disk queue without taking them. The functions are for Python: see the .pyi.
