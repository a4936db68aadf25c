# A connection changes to TLS and compression, as IDENTIFY has agreed:
#
#   begin()      nothing more is read in the clear, and the reply to IDENTIFY leaves, with all before it
#   handshake    if TLS was agreed; what had come behind IDENTIFY is dropped, and OK follows inside TLS
#   codec        if one was agreed; OK follows inside it
#   done         what has come meanwhile is input of the codec
#
# One for each upgrade; the connection drops it when Link.upgraded() is called.

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
    cdef object host                # what the connection limits count the client under
    cdef object agreed              # nsqc.tcp.identify.Layers
    cdef bint shaking_hands         # the transport belongs to TLS, which has nothing for us yet

    @staticmethod
    cdef Upgrade new(Link link, Hub hub, Session session, Intake intake, Outbox outbox, Marks marks, object host)

    cdef int begin(self) except -1
    cdef int retry_later(self) except -1    # what stood before it has left
