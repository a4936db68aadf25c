# Publishes the dead messages of a channel to its dead-letter topic.

from nsqc.broker.channel cimport Channel
from nsqc.broker.topic cimport Topic
from nsqc.store.seams cimport LoopWork


cdef class DeadLetters(LoopWork):
    # A running batch; channel.sender, unless it was forgotten meanwhile.
    cdef Channel channel


# Begins a batch; none may be running. node: of the daemon, for the origins. False: the topic accepts nothing now.
cdef bint dead_publish(Topic target, Channel channel, bytes node) except *
