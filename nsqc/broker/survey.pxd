# Numbers of all topics and channels, and looks at their messages, in slices.

from libc.stdint cimport int64_t

from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel
from nsqc.broker.figures cimport Retired
from nsqc.broker.topic cimport Topic
from nsqc.metrics.table cimport Row, Table
from nsqc.store.work cimport LoopWork


# ====================================================================== survey
# All topics and channels as numbers, for metrics: collected in slices, into tables that a thread reads afterwards.

cdef class Survey(LoopWork):
    cdef readonly Table topics
    cdef readonly Table channels
    cdef readonly int64_t topic_count, channel_count
    cdef readonly int64_t queue_bytes   # of memory queues and the records of deliveries
    cdef Broker broker
    cdef list left                      # topics still to be added, and
    cdef Py_ssize_t at                  # the next of them
    cdef Py_ssize_t plain               # the number of those before the ephemeral ones
    cdef list fans                      # the channels of these, as of when deleted names were counted
    cdef Topic topic                    # whose channels are being added
    cdef list channels_left             # its remaining channels, and
    cdef Py_ssize_t channel_at
    cdef Row *fold                      # the row of its folded channels; NULL: none so far, here and below
    cdef Row *ephemeral_topics
    cdef Row *ephemeral_channels
    cdef object done
    cdef readonly object failure    # type: Exception | None

    cdef bint _collect(self) except -1
    cdef int _add_topic(self, Topic topic, list fan) except -1
    cdef int _add_channel(self, Channel channel) except -1
    cdef int _add_counts(self, Row *row, Channel channel) except -1
    cdef Row *_row_of(self, Channel channel) except NULL
    cdef Row *_begin_fold(self, bytes topic, Retired *retired) except NULL


# ====================================================================== peek

# Finds the messages of a topic or channel, for read-only inspection. The functions are for Python: see the .pyx.
