# The end of a channel: its deletion, or the daemon's stop.

from nsqc.broker.channel cimport Channel

# Closes the consumers and drops everything, files included.
cdef int delete_channel(Channel channel) except -1
# For a stop, with no file work in progress: closes the consumers and writes everything to disk. Returns (memory, in
# flight, deferred, delays): how many messages of each kind were written, and each deferred one's id and due time, in
# wall-clock nanoseconds. Raises OSError.
cdef tuple close_channel(Channel channel)
