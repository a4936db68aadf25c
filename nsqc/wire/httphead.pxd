# The head of an HTTP/1 request: its line, and the fields that the server uses.

from libc.stdint cimport int64_t


cdef class Head:
    cdef readonly bytes method
    cdef readonly bytes target      # as received
    cdef readonly int minor         # of the version, HTTP/1.minor
    cdef readonly int64_t length    # of the body, bytes; -1: in chunks
    cdef readonly bint keep_alive   # the connection stays open
    cdef readonly bint expects      # Expect: 100-continue
    cdef readonly bytes host        # None without one, in HTTP/1.0
    cdef readonly bytes accept      # several fields are joined; empty without one
    cdef readonly bytes origin      # None without one
    cdef readonly bytes fetch_site  # Sec-Fetch-Site; None without one
    cdef readonly bytes authorization   # None without one; a secret
    cdef readonly bytes publish_id  # X-NSQ-Publish-Id; None without one
