# Busy polling: while traffic is dense, the loop polls for events for a moment before it sleeps.
#
# To wake a sleeping thread takes the kernel longer than nsqc needs for a command, so a client that sends one command at
# a time mostly waits for that. Polling costs a processor, though. So it begins only when waits have been short many
# times in a row, lasts no longer than a client of that kind needs for its next command, and ends when waits get long.

from libc.stdint cimport int64_t
from nsqc.loop.uv cimport Hooks

cdef enum:
    DENSE = 16              # short waits in a row before the loop polls
    MOST_DENSE = 32         # more than that many do not count
    LONG_WAIT = 8           # what a wait that was not short takes back


cdef struct BusyPollState:
    void *loop              # uv_loop_t, borrowed
    int64_t most_ns         # how long to poll, and what counts as a short wait; 0: off
    int64_t since_ns        # when the present wait began; 0: the loop does not wait in this iteration
    int short_waits         # fewer those that were long; 0 to MOST_DENSE
    int64_t polls           # waits that began with polling
    int64_t hits            # of these, those that ended before the loop would have slept


cdef class BusyPoll:
    cdef Hooks *hooks
    cdef BusyPollState *state       # owned by the hooks
