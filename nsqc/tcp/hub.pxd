# State shared by all connections of one daemon.

from nsqc.broker.broker cimport Broker
from nsqc.store.slices cimport Slicer
from nsqc.tcp.outbox cimport Iteration
from nsqc.tcp.session cimport Limits

cdef enum:
    RECEIVE_BYTES = 262144      # of the area: the most bytes of one read
    HEADROOM = 65536            # of the area, before that: see intake.pxd


cdef class Hub:
    cdef readonly Broker broker
    cdef Iteration iteration
    cdef Limits limits
    cdef object settings       # nsqc.options.declared.Settings
    cdef readonly object log            # nsqc.log.Log
    cdef readonly object loop
    cdef public object authority        # nsqc.access.authority.Authority; None: clients need not authenticate
    cdef object audit                   # nsqc.access.audit.Audit; None: nothing is recorded
    cdef object connection_limits  # nsqc.net.limits.ConnectionLimits
    cdef object tls            # nsqc.net.tls.Certificates; None: TLS is not offered
    cdef readonly dict connections      # all open ones: Connection to None, in order of arrival
    cdef dict tallies                   # error code to nsqc.log.repeats.Kind, for errors that are only counted
    cdef Slicer slicer
    cdef char *area                     # owned
    cdef char *c_into                   # where the next read goes: the area, or an arriving message
    cdef Py_ssize_t room                # bytes available there

    cdef void complain(self, address, bytes error) noexcept
