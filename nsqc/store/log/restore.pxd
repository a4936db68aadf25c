# Cursors at the start: what an earlier run has left waits again.

from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.journal cimport CursorState

# What was in flight waits first, with what was requeued, by offset.
cdef int cursor_restore(Cursor cursor, CursorState *state) except -1
