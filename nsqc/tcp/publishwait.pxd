# --publish-wait: a publish that a rule refuses waits for room. Its connection reads nothing meanwhile, so all behind it
# waits, too; deliveries and heartbeats go on.

from nsqc.broker.seams cimport Publisher
from nsqc.tcp.session cimport Session

# Nothing of session.batch was published, since it was refused. Whether it waits: then session.awaits_room is set.
cdef bint begin_wait(Session session) noexcept
# With session.awaits_room: publisher.publish_on() follows.
cdef void wait_for_room(Session session, Publisher publisher) noexcept
# The connection ends: publisher waits no longer, and the next attempt of its publish is the last.
cdef void end_wait(Session session, Publisher publisher) noexcept
