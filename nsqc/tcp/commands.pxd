# One function for each V2 command, and the switch that lists them.

from nsqc.tcp.largebody cimport LargeBody
from nsqc.tcp.session cimport Session
from nsqc.wire.parser cimport Command, Parser

cdef enum Outcome:
    DONE            # nothing to answer
    ANSWER_OK
    ANSWER          # session.error holds the reply
    FATAL = 3       # session.error holds the error; the connection closes behind it
    FAILED          # session.error holds the error; the connection goes on
    WANTS_BODY      # the line is fine: parser.expect_body has been called
    SPILLED         # ANSWER_OK, which holds only once the turn's disk commit has succeeded
    WAITS           # for an auth server: nothing is done yet, run the command again from its line after go_on()
    GOES_ON         # of a multi-publish: the slice is over; go_on_mpub(), with session.batch.c_at put right
    UPGRADE         # ANSWER, and behind it TLS or compression, as session.upgrade says


# None of these lets an exception through: it becomes the error of the command.

# The line of a command is known. Commands without body are done here.
cdef int run_line(Session session, Parser parser) noexcept
# The body is known, too.
cdef int run_body(Session session, Parser parser) noexcept
# All messages of a PUB or MPUB are gathered.
cdef int run_gathered(Session session, Parser parser, LargeBody body) noexcept
cdef int go_on_mpub(Session session, Parser parser) noexcept
# The parser refuses the body: event says why.
cdef int refuse(Session session, Parser parser, int event) noexcept
# The connection ends, or stalls, amid a command of which have bytes have come: FATAL with what is missing, or DONE
# where nothing is to be said.
cdef int cut_short(Session session, Parser parser, Py_ssize_t have) noexcept
