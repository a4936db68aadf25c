# One function for each V2 command, and the switches that list them. Results are Outcomes.
#
# None of these lets an exception through: it becomes the error of the command.

from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Parser

# The line of a command is known. Commands without body are done here.
cdef int run_line(Session session, Parser parser) noexcept
# The body is known, too.
cdef int run_body(Session session, Parser parser) noexcept
# All messages of a PUB or MPUB are gathered.
cdef int run_gathered(Session session, Parser parser, LargeBody body) noexcept
# After SLICE_OVER.
cdef int continue_mpub(Session session, Parser parser) noexcept
