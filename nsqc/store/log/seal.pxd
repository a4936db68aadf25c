# Writes the index of a segment that has ended behind its frames, on a thread. If that fails, readers only walk further.

from libc.stdint cimport int64_t, uint64_t

from nsqc.store.disk.pool cimport IoPool
from nsqc.store.log.index cimport Index

cdef void seal_begin(IoPool io, bytes c_folder, int64_t first, uint64_t salt, const Index *index) noexcept  # takes it
