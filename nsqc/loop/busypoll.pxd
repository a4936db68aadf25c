# Busy polling: under dense traffic, the loop polls for events for a moment before it sleeps.
#
# The kernel needs longer to wake a sleeping thread than nsqc needs to execute a command, so a client that sends one
# command at a time mostly waits for the wakeup. But polling burns a processor. So it starts only after many short waits
# in a row, lasts no longer than such a client needs to send its next command, and stops once waits get long.

from libc.stdint cimport int64_t
from nsqc.loop.uv cimport Hooks

cdef enum:
    DENSE = 16              # short waits in a row before the loop polls
    MOST_DENSE = 32         # counter limit
    LONG_WAIT = 8           # subtracted for a wait that was not short


cdef struct BusyPollState:
    void *loop              # uv_loop_t, borrowed
    int64_t most_ns         # how long to poll, and the longest short wait; 0: off
    int64_t since_ns        # start of the current wait; 0: the loop does not wait in this iteration
    int short_waits         # short waits counted, reduced by long ones; 0 to MOST_DENSE
    int64_t polls           # waits that began with polling
    int64_t hits            # of these, waits that ended during polling, before the loop slept


cdef class BusyPoll:
    cdef Hooks *hooks
    cdef BusyPollState *state       # owned by the hooks
