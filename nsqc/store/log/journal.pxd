# What channels of a log topic have done, as their snapshot and journals say it: see docs/ondisk.md. All of it is C and
# may run on any thread; a state has one owner.
#
# Whatever is damaged or missing makes messages come again, and leaves none out: what was not read is not finished. The
# one operation that this cannot be said of is a RESET to an earlier offset (a seek back) that is lost: a writer should
# write frames with OP_RESET or OP_NAME twice.

from libc.stdint cimport int64_t, uint8_t, uint32_t
from nsqc.store.log.offsets cimport OffsetSet, WaitingSet
from nsqc.wire.const cimport MAX_NAME_BYTES

cdef enum:
    MOST_FRAME_BYTES = 268435456    # of a payload

cdef struct CursorState:
    uint32_t number
    uint8_t name_bytes          # 0: its name is not known, it was lost to damage
    char[MAX_NAME_BYTES + 1] name
    int64_t cursor              # next offset never delivered
    OffsetSet out               # below the cursor: unfinished, attempts not known
    OffsetSet skips             # at or ahead of the cursor: not to be delivered when it comes there
    # Unfinished and with attempts; none of them is in out. One that is ahead of the cursor is in skips, too.
    WaitingSet waiting
    int64_t at                  # in LogState.channels
    CursorState *next_number    # in a bucket
    CursorState *next_name

cdef struct LogState:
    CursorState **channels      # owned, in no order
    int64_t count, room
    CursorState **by_number     # buckets
    CursorState **by_name
    uint32_t mask               # buckets - 1; a power of two
    int64_t topic_cursor        # the first offset that is not for the channels yet
    bint topic_known            # there was one
    uint32_t highest            # number in use so far
    # What was read.
    int64_t snapshot            # number of the one that was used; 0: none
    int64_t last_number         # of the last journal; 0: there is none
    int64_t bytes               # of everything that was read
    # What was not.
    int64_t damaged             # frames, heads and operations that make no sense
    int64_t damaged_bytes
    int64_t missing             # journals
    int64_t torn_bytes          # an incomplete frame at the end of a journal, as a kill leaves it


cdef void state_init(LogState *state) noexcept nogil
cdef void state_free(LogState *state) noexcept nogil                # it is as initialized then
# Applies the payload of a frame. Damaged operations end their section, and are counted. 0 or ENOMEM.
cdef int state_apply(LogState *state, const char *c_payload, int64_t length) noexcept nogil
cdef CursorState *state_channel(LogState *state, uint32_t number) noexcept nogil            # NULL: none
cdef CursorState *state_named(LogState *state, const char *c_name, uint8_t bytes) noexcept nogil     # NULL: none
cdef void journal_head(char *c_to, uint32_t number) noexcept nogil  # JOURNAL_HEAD_BYTES, of a snapshot, too
cdef bint journal_head_sound(const char *c_from, uint32_t number) noexcept nogil
# Whether a payload may begin so; SECTION_BYTES must be readable.
cdef bint sections_begin(const char *c_payload, int64_t length) noexcept nogil
cdef bint sections_plausible(const char *c_payload, int64_t length) noexcept nogil     # whether it may be a payload
cdef bint is_end(const char *c_payload, int64_t length) noexcept nogil                 # of a snapshot
