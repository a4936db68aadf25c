"""From a topic's backlog to its channels. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t

from nsqc.broker.channel cimport Channel
from nsqc.store.backlog cimport PUT_NO_MEMORY
from nsqc.store.fifo cimport Entry
from nsqc.store.message cimport message_ref, message_unref
from nsqc.store.rules cimport CHECKS, broken
from nsqc.store.seams cimport LoopWork
from nsqc.store.slices cimport SIZE_SHIFT, STEPS

cdef enum:
    LEAST_ALLOWANCE = 64        # messages that a topic accepts before it has passed on any


cdef void flow_refresh(TopicState topic) noexcept:
    cdef bint flowing = flows(topic)
    topic.direct = flowing and not topic.has_queued()
    if topic.direct:
        topic.waiting = False
    if topic.direct or not flowing:
        flow_let_publish(topic, INT64_MAX)
    elif not topic.waiting and not topic.retrying:
        topic.slicer.add(topic)


cdef void flow_let_publish(TopicState topic, int64_t allowance) noexcept:
    cdef LoopWork publisher
    cdef list held = topic.held
    topic.allowance = allowance
    if held:
        topic.held = []
        for publisher in held:
            topic.slicer.add(publisher)


cdef void flow_slice(TopicState topic) noexcept:
    if flows(topic):
        topic.clock.refresh()
        drain(topic)
    flow_refresh(topic)


cdef int flow_begin(TopicState topic) except -1:
    if flows(topic) and not topic.waiting and not topic.retrying:
        topic.clock.refresh()
        topic.slicer.begin_within(topic.clock.monotonic)
        drain(topic)
    flow_refresh(topic)
    return 0


cdef void drain(TopicState topic) noexcept:
    """Passes on waiting messages until the slice is over."""
    cdef Entry entry
    cdef int64_t passed = 0
    cdef int64_t cost = 1 + topic.fan_count, left = STEPS
    if not pass_again(topic):
        try_again(topic)
        return
    while topic.stuck == 0 and topic.fan_count > 0:
        if not topic.backlog.pop(&entry):
            topic.waiting = topic.backlog.depth() > 0 and not topic.retrying
            break
        passed += 1
        left -= (cost - 1) * <int64_t> (entry.message.size >> SIZE_SHIFT)
        if not pass_on(topic, &entry, topic.backlog.place is not NULL, topic.fan):
            try_again(topic)
            break
        left -= cost
        if left <= 0:
            if topic.commit.is_full():
                topic.waiting = True    # flow_commit_ended() follows
                break
            if topic.slicer.over():
                break
            left = STEPS
    if topic.commit.is_clean():
        flow_copies_done(topic)     # no channel has a disk
    if passed:
        flow_let_publish(topic, max(passed // 2, <int64_t> LEAST_ALLOWANCE))


cdef void try_again(TopicState topic) noexcept:
    if not topic.retrying:
        topic.retrying = True
        topic.owner.resume_later(topic)


cdef void flow_readable(TopicState topic) noexcept:
    topic.waiting = False
    flow_refresh(topic)


cdef void flow_unreadable(TopicState topic) noexcept:
    topic.waiting = False
    try_again(topic)


# ---------------------------------------------------------------------- to the channels

cdef bint pass_on(TopicState topic, Entry *entry, bint copy, list channels) noexcept:
    """Passes a message on to these channels and takes its reference. False: no memory, so some get it later."""
    cdef Channel channel
    cdef list lacking = None
    cdef int result
    for channel in channels:
        if channel.exiting:
            continue
        message_ref(entry.message)
        if copy:
            result = channel.put_copy(entry.message, entry.attempts, entry.defer_ms)
        elif entry.defer_ms:
            result = channel.put_deferred(entry.message, entry.attempts, entry.defer_ms)
        else:
            result = channel.put(entry.message, entry.attempts)
        if result == PUT_NO_MEMORY:
            message_unref(entry.message)
            if lacking is None:
                lacking = []
            lacking.append(channel)
    if lacking is None:
        message_unref(entry.message)
        return True
    topic.leftover = entry[0]
    topic.leftover_copy = copy
    topic.lacking = lacking
    return False


cdef bint pass_again(TopicState topic) noexcept:
    """Passes on the leftover message. True: no channel lacks it now."""
    cdef Entry entry = topic.leftover
    cdef list channels = topic.lacking
    if entry.message is NULL:
        return True
    topic.leftover.message = NULL
    topic.lacking = None
    return pass_on(topic, &entry, topic.leftover_copy, channels)


cdef void flow_drop_leftover(TopicState topic) noexcept:
    if topic.leftover.message is not NULL:
        message_unref(topic.leftover.message)
        topic.leftover.message = NULL
        topic.lacking = None


# ---------------------------------------------------------------------- places of messages from disk

cdef void flow_commit_began(TopicState topic) noexcept:
    if topic.backlog.disk is not None and topic.leftover.message is NULL:
        topic.copied_serial = topic.backlog.disk.unacked.serial


cdef void flow_commit_ended(TopicState topic, int error) noexcept:
    """The copies of messages read earlier are written, unless a channel failed."""
    if topic.stuck == 0 and error == 0 and topic.backlog.disk is not None:
        check_copies(topic)
        topic.backlog.disk.done_before(topic.copied_serial)
    if topic.waiting:
        flow_readable(topic)
    if topic.held and not topic.storage.lags(topic):
        flow_let_publish(topic, topic.allowance)


cdef void flow_copies_done(TopicState topic) noexcept:
    if topic.stuck == 0 and topic.backlog.disk is not None and topic.leftover.message is NULL:
        check_copies(topic)
        topic.backlog.disk.done_before(topic.backlog.disk.unacked.serial)


cdef void check_copies(TopicState topic) noexcept:
    # RULE: a topic gives up places only when none of their copies is in a buffer. If no write runs and none has failed,
    # the messages in a channel's buffer came after the commit began.
    cdef Channel channel
    if not CHECKS:
        return
    for channel in topic.fan:
        if channel.backlog.disk is not None and (channel.backlog.disk.writing is not NULL
                                                 or channel.backlog.disk.write_error):
            broken("a topic gives up places whose copies are not written")


cdef void flow_drop_places(TopicState topic) noexcept:
    """Nothing else owns and ends these places."""
    if topic.backlog.disk is not None:
        topic.backlog.disk.done_before(INT64_MAX)
