# One function for each V2 command, and the switches over them. Results are Outcomes.
#
# None of these lets an exception escape: it becomes the error of the command.

from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Parser

# After the line of a command; finishes commands without a body.
cdef int run_line(Session session, Parser parser) noexcept
# After the body.
cdef int run_body(Session session, Parser parser) noexcept
# After all messages of a PUB or MPUB are gathered.
cdef int run_gathered(Session session, Parser parser, LargeBody body) noexcept
# After SLICE_OVER.
cdef int continue_mpub(Session session, Parser parser) noexcept
