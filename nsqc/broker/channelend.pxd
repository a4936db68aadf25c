# The end of a channel: it is deleted, or its daemon stops.

from nsqc.broker.channel cimport Channel

# Closes the consumers and drops everything, files included.
cdef int delete_channel(Channel channel) except -1
# For a stop, when no file work is in progress: closes the consumers and writes everything to disk. Returns (memory, in
# flight, deferred, delays): how many messages of each kind were written, and for each deferred one its id and due time,
# in wall-clock nanoseconds. Raises OSError.
cdef tuple close_channel(Channel channel)
