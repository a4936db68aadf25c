# Publishes the dead messages of a channel to its dead-letter topic.

from nsqc.broker.channel cimport Channel
from nsqc.broker.topic cimport Topic
from nsqc.store.seams cimport LoopWork


cdef class DeadLetters(LoopWork):
    # A running batch; channel.sender, unless it was forgotten meanwhile.
    cdef Channel channel


# Begins a batch; none may be running. node: of the daemon, for the origins. reasons: gets a bit for each LeaveReason
# of its messages. PutResult: PUT_MEMORY if it has begun; PUT_DISK if the commit has to end before; or why the topic
# refused the first message.
cdef int dead_publish(Topic target, Channel channel, bytes node, int *reasons) except -1
