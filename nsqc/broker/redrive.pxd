# Puts messages into one channel of a topic only. For Python: see the .pyi.

from nsqc.broker.channel cimport Channel
from nsqc.store.heap cimport Heap


cdef class Taken:
    cdef Channel source
    cdef Heap heap          # deliveries with their places, being moved; owned
