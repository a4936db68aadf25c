"""The state of cursors at the start. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from nsqc.store.log.journal cimport CursorState, state_free, state_init, state_named
from nsqc.store.log.listing cimport JOURNAL, CursorFile, Listing, file_name
from nsqc.store.log.ops cimport OP_RESET, TOPIC_NUMBER
from nsqc.store.log.restore cimport cursor_restore

NO_NUMBER = -1


@cython.final
cdef class TopicPlace(Journaled):
    """Where messages begin that no channel may read yet."""

    def __init__(self, TopicLog log not None, int64_t next):
        self.recorder = log.recorder
        self.number = TOPIC_NUMBER
        self.next = next

    cdef void move(self, int64_t next) noexcept:
        if next != self.next:
            self.next = next
            self.add_cursor(OP_RESET, next)


@cython.final
cdef class Earlier:
    """Snapshots and journals of a folder, replayed."""

    def __cinit__(self):
        state_init(&self.state)

    def __dealloc__(self):
        state_free(&self.state)

    @property
    def channels(self) -> list:
        """Names of the channels."""
        cdef int64_t index
        return [PyBytes_FromStringAndSize(self.state.channels[index].name, self.state.channels[index].name_bytes)
                for index in range(self.state.count) if self.state.channels[index].name_bytes]

    @property
    def topic_cursor(self):
        """The first offset that is not for the channels; None: unknown."""
        return self.state.topic_cursor if self.state.topic_known else None

    @property
    def reached(self) -> int:
        """The highest offset that a channel continues at: no message with a lower one is new."""
        cdef int64_t index, highest = 0
        for index in range(self.state.count):
            highest = max(highest, self.state.channels[index].cursor)
        return highest

    @property
    def next_number(self) -> int:
        """Of the next new channel."""
        return self.state.highest + 1

    @property
    def journals(self) -> tuple:
        """(the first journal that is needed, the last one; 0: there is none, bytes of all)."""
        return (self.state.snapshot or min(1, self.state.last_number), max(self.state.last_number, self.state.snapshot),
                self.state.bytes)

    @property
    def damage(self) -> tuple:
        """(damaged frames and operations, their bytes, missing journals, bytes of a torn frame at the end)."""
        return (self.state.damaged, self.state.damaged_bytes, self.state.missing, self.state.torn_bytes)

    cdef Cursor cursor(self, TopicLog log, bytes name, BacklogOwner owner):
        cdef CursorState *state = state_named(&self.state, PyBytes_AS_STRING(name), <unsigned char> len(name))
        cdef Cursor cursor
        if state is NULL:
            return None
        cursor = Cursor(log, name, owner, state.number, min(state.cursor, log.next))
        cursor_restore(cursor, state)
        if self.damaged:
            cursor.add_name(name)       # a snapshot of what is left of the journal might not have it
        return cursor


cdef Earlier make_earlier(LogState *state, Listing *listing):
    cdef Earlier earlier = Earlier.__new__(Earlier)
    cdef CursorFile *file
    cdef int64_t index
    earlier.state = state[0]
    state_init(state)
    earlier.damaged = earlier.state.damaged > 0 or earlier.state.missing > 0
    earlier.numbers = []
    earlier.strays = []
    for index in range(listing.count + listing.strays):
        file = &listing.files[index]
        if index >= listing.count:
            earlier.strays.append(file_name(file))
        elif file.kind == JOURNAL and file.number >= earlier.state.snapshot:
            earlier.numbers.append(file.number)
    return earlier


cdef Cursor new_cursor(TopicLog log, bytes name, BacklogOwner owner, bint ephemeral, int64_t start):
    cdef Cursor cursor
    if ephemeral:
        return Cursor(log, name, owner, NO_NUMBER, start)
    cursor = Cursor(log, name, owner, log.recorder.next_number, start)
    log.recorder.next_number += 1
    cursor.add_name(name)
    cursor.add_cursor(OP_RESET, start)
    return cursor
