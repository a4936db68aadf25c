# Messages that go to one channel of a topic and to no other. For Python: see the .pyi.

from nsqc.broker.channel cimport Channel
from nsqc.store.heap cimport Heap


cdef class Taken:
    cdef Channel source
    cdef Heap heap          # deliveries with their places, on their way; owned
