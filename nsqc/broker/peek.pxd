# Finds the messages of a topic or channel, for read-only inspection. The functions are for Python: see the .pyi.
