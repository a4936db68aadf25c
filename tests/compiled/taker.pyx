"""A consumer without a session (nsqc.broker.channel), driven from Python."""

from libc.stdint cimport int64_t, uint16_t

from nsqc.broker.channel cimport Channel, Consumer
from nsqc.store.message cimport Message


cdef class Taker(Consumer):
    """Takes this many messages and finishes none. bodies: of all of them."""

    cdef readonly list bodies

    def __init__(self, int64_t ready_count):
        self.id = 1
        self.ready_count = ready_count
        self.bodies = []
        self.msg_timeout_ns = 60000000000

    def subscribe(self, Channel channel not None):
        """Becomes ready; the channel delivers waiting messages when it is unpaused or receives one."""
        channel.add_client(self)
        channel.update(self)

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        self.bodies.append(message.body[:message.size])
