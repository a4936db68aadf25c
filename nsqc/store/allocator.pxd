# What the C library's allocator holds beside the slabs. Functions for Python only: nothing is called for each message.
