# Memory of the C library's allocator, apart from the slabs. Functions for Python only: never called per message.
