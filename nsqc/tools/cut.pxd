# Converts text or bodies to publishing commands.

from libc.stdint cimport int32_t, int64_t
