# Formats bodies of a batch as lines of text.

from libc.stdint cimport int32_t
