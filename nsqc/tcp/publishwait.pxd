# --publish-wait: a publish that a rule refuses waits for room. Meanwhile its connection reads nothing, so later
# commands wait, too; deliveries and heartbeats continue.

from nsqc.store.seams cimport LoopWork
from nsqc.tcp.session cimport Session

# A refusal left all of session.batch unpublished. Returns whether it waits: then session.awaits_room is set.
cdef bint begin_wait(Session session) noexcept
# With session.awaits_room: the slicer runs the publisher later.
cdef void wait_for_room(Session session, LoopWork publisher) noexcept
# The connection ends: the publisher stops waiting, and the next attempt of its publish is the last.
cdef void end_wait(Session session, LoopWork publisher) noexcept
