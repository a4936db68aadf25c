# Upward calls of the broker: abstract bases that a higher part implements and passes in when it creates the lower one.
# Consumer, through which a channel delivers, has its own header. Seams to Python are Protocols: protocols.py.
#
# Topic and Channel are defined above this header, so arguments have the types of their bases.

from nsqc.store.backlog cimport BacklogOwner, CommitLog, CommitOwner, CommitWaiter


cdef class Publisher(CommitWaiter):
    # A publishing client that can be paused while its topic catches up.
    cdef void publish_on(self) noexcept


cdef class ChannelOwner(CommitOwner):
    # The topic of a channel. first: the channel was not stuck before this write failed.
    cdef bint crowded                       # publishers wait for room: see room.pxd
    cdef void on_channel_stuck(self, BacklogOwner channel, int error, bint first) noexcept
    cdef void on_channel_healed(self, BacklogOwner channel) noexcept    # it has written its backlog, or has none left
    cdef bint is_behind(self) noexcept      # messages wait that its channels get before those of the log
    cdef void on_dead(self, BacklogOwner channel) noexcept      # messages are to go to its dead-letter topic
    cdef void on_room(self) noexcept        # while crowded: a message has left the queues of a channel
    cdef int on_clients_gone(self, BacklogOwner channel) except -1      # an ephemeral one has lost its last client


cdef class TopicOwner:
    # The broker of a topic.
    cdef public bint closing            # the daemon is stopping: nothing new is made, and nothing moves
    cdef public bint draining           # nothing new is accepted or delivered; messages in flight may finish
    cdef BacklogOwner make_channel(self, CommitOwner topic, bytes name)
    cdef int on_channel_created(self, CommitOwner topic, BacklogOwner channel) except -1
    # The channel is about to drop its messages.
    cdef int on_channel_deleted(self, CommitOwner topic, BacklogOwner channel) except -1
    cdef int on_last_channel_gone(self, CommitOwner topic) except -1    # of an ephemeral topic
    cdef int on_topic_deleted(self, CommitOwner topic) except -1        # with all its messages
    # Of a channel, or, if that is None, of the topic itself.
    cdef void on_write_failed(self, CommitOwner topic, BacklogOwner channel, int error) noexcept
    cdef void on_write_healed(self, CommitOwner topic, BacklogOwner channel) noexcept
    # Its log may have segments to remove, or it has ids of publishes to forget.
    cdef void on_log_grew(self, CommitOwner topic) noexcept
    cdef void on_aging(self, CommitOwner topic) noexcept                    # it may have messages to drop
    cdef void on_bound(self, CommitOwner topic) noexcept                    # it refuses publishes: see bound_reason
    cdef int on_log_full(self, CommitOwner topic, bint full) except -1      # or no longer full
    cdef int on_log_left(self, CommitOwner topic, CommitLog log) except -1  # everything in it is finished
    cdef int on_refused(self, reason) except -1                             # a publish, see nsqc.broker.refusals
    cdef object space_reason(self)                                          # why the disk is out of room
    cdef void on_dead(self, BacklogOwner channel) noexcept
    cdef void resume_later(self, CommitOwner topic) noexcept            # calls topic.resume() soon
