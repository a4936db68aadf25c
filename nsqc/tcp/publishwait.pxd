# --publish-wait: a publish that a rule refuses waits for room. Its connection reads nothing meanwhile, so all behind it
# waits, too; deliveries and heartbeats go on.

from libc.stdint cimport int64_t
from nsqc.broker.seams cimport Publisher
from nsqc.tcp.session cimport Session

# Of session.batch, which has count messages, nothing was published. Whether it waits: then it is as it was before, and
# session.awaits_room is set. Else its result stands.
cdef bint begin_wait(Session session, int64_t count) noexcept
# With session.awaits_room: publisher.publish_on() follows.
cdef void wait_for_room(Session session, Publisher publisher) noexcept
# The connection ends: publisher waits no longer, and the next attempt of its publish is the last.
cdef void end_wait(Session session, Publisher publisher) noexcept
