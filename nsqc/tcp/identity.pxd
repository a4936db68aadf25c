# Commands that identify a client, and its permission checks. Results are Outcomes.

from libc.stdint cimport int64_t
from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Command, Parser

cdef int begin_identify(Session session, Parser parser) except -1
cdef int do_identify(Session session, Command *command) except -1
cdef int begin_auth(Session session, Parser parser) except -1
cdef int do_auth(Session session, Command *command) except -1

# With a metered guard. DONE, or ERROR: the client's quota is used up. size: bytes of the messages' bodies.
cdef int charge(Session session, bytes name, int64_t messages, int64_t size) except -1

# Whether a client whose PUB or MPUB was permitted at the start of its body may still publish: the last answer decides.
cdef int permit_still(Session session, bytes name, const char *c_topic, Py_ssize_t length) except -1
# With a guard. DONE: the client may publish, and its quota allows it; otherwise the command's result.
# known: the command names the topic last published to.
cdef int permit_publish(Session session, bytes name, Command *command, bint known) except -1
# Checks a subscription to the channel, or a publish if channel is empty.
cdef int permit(Session session, bytes name, bytes topic, bytes channel) except -1
