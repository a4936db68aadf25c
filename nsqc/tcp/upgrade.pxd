# The change of a connection to TLS and compression, as agreed by IDENTIFY:
#
#   begin()      nothing more is read in the clear, and the reply to IDENTIFY is sent, with all output before it
#   handshake    if TLS was agreed; drops input after IDENTIFY, then sends OK inside TLS
#   codec        if one was agreed; sends OK inside it
#   done         input received meanwhile goes through the codec
#
# One for each upgrade; the connection drops it at Link.upgraded().

from nsqc.tcp.hub cimport Hub
from nsqc.tcp.intake cimport Intake
from nsqc.tcp.link cimport Link
from nsqc.tcp.marks cimport Marks
from nsqc.tcp.outbox cimport Outbox
from nsqc.tcp.session cimport Session


cdef class Upgrade:
    cdef Link link
    cdef Hub hub
    cdef Session session
    cdef Intake intake
    cdef Outbox outbox
    cdef Marks marks
    cdef object host                # the client's key for the connection limits
    cdef object agreed              # nsqc.tcp.identify.Layers
    cdef bint shaking_hands         # the transport belongs to TLS, which has no input for us yet

    @staticmethod
    cdef Upgrade new(Link link, Hub hub, Session session, Intake intake, Outbox outbox, Marks marks, object host)

    cdef int begin(self) except -1
    cdef int retry_later(self) except -1    # after earlier output was sent
