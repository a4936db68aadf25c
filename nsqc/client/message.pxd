# A message as an application sees it. The columns that it is made of are those of Inflow.columns().

from libc.stdint cimport int64_t

cdef class Message:
    cdef readonly bytes body
    cdef readonly bytes id              # 16 characters
    cdef readonly int64_t timestamp_ns  # since 1970: when it was published
    cdef readonly int attempts
    cdef readonly object connection     # the Connection it came over
    cdef readonly bint answered         # finished or requeued

    cdef bint _answer(self) except -1   # whether it was not answered yet; it is then
