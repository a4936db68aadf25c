# Text or bodies to the commands that publish them.

from libc.stdint cimport int32_t, int64_t
