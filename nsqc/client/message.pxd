# A message for applications, created from a row of Inflow.columns().

from libc.stdint cimport int64_t

cdef class Message:
    cdef readonly bytes body
    cdef readonly bytes id              # 16 characters
    cdef readonly int64_t timestamp_ns  # since 1970: publication
    cdef readonly int attempts
    cdef readonly object connection     # an Answerable: the connection that delivered it
    cdef readonly bint answered         # finished or requeued

    cdef bint _answer(self) except -1   # marks it answered; False if it already was
