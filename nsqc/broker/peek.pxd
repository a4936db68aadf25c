# Where the messages of a topic or channel are, for who only looks. The functions are for Python: see the .pyi.
