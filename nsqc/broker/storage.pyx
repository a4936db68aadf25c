"""Where a topic keeps messages: memory and disk queue, or a log; and the flow to its channels. See the .pxd."""

cimport cython
import os
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from nsqc.broker.channel cimport Channel, unlikely
from nsqc.broker.leaving cimport topic_waits
from nsqc.broker.topic cimport GATHERED, SIZED, SIZE_BYTES, OpenBatch, Part, Storage, Topic, batch_next, once_wrote
from nsqc.store.backlog cimport PUT_DISK, PUT_EXITING, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE, is_refused
from nsqc.store.log.cursor cimport Cursor, TopicPlace, new_cursor
from nsqc.store.log.frame cimport Buffer, buffer_free, buffer_room
from nsqc.store.log.names import SETTLED
from nsqc.store.log.positions cimport Range, RangeWalk, offsets_from, offsets_next, offsets_remove
from nsqc.store.log.segment cimport segments_rank
from nsqc.store.memory cimport CHECKS, broken
from nsqc.store.message cimport Entry, Message, message_new, message_ref, message_unref
from nsqc.store.work cimport SIZE_SHIFT, STEPS, LoopWork
from nsqc.wire.hton cimport load_i32, store_i32


# ====================================================================== flow

cdef enum:
    LEAST_ALLOWANCE = 64        # messages that a topic accepts before it has passed on any


cdef void flow_refresh(Topic topic) noexcept:
    cdef bint flowing = flows(topic)
    topic.direct = flowing and not topic.has_queued()
    if topic.direct:
        topic.waiting = False
    if topic.direct or not flowing:
        flow_let_publish(topic, INT64_MAX)
    elif not topic.waiting and not topic.retrying:
        topic.slicer.add(topic)


cdef void flow_let_publish(Topic topic, int64_t allowance) noexcept:
    cdef LoopWork publisher
    cdef list held = topic.held
    topic.allowance = allowance
    if held:
        topic.held = []
        for publisher in held:
            topic.slicer.add(publisher)


cdef void flow_slice(Topic topic) noexcept:
    if flows(topic):
        topic.clock.refresh()
        drain(topic)
    flow_refresh(topic)


cdef int flow_begin(Topic topic) except -1:
    if flows(topic) and not topic.waiting and not topic.retrying:
        topic.clock.refresh()
        topic.slicer.begin_within(topic.clock.monotonic)
        drain(topic)
    flow_refresh(topic)
    return 0


cdef void drain(Topic topic) noexcept:
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


cdef void try_again(Topic topic) noexcept:
    if not topic.retrying:
        topic.retrying = True
        topic.owner.resume_later(topic)


cdef void flow_readable(Topic topic) noexcept:
    topic.waiting = False
    flow_refresh(topic)


cdef void flow_unreadable(Topic topic) noexcept:
    topic.waiting = False
    try_again(topic)


# ---------------------------------------------------------------------- to the channels

cdef bint pass_on(Topic topic, Entry *entry, bint copy, list channels) noexcept:
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


cdef bint pass_again(Topic topic) noexcept:
    """Passes on the leftover message. True: no channel lacks it now."""
    cdef Entry entry = topic.leftover
    cdef list channels = topic.lacking
    if entry.message is NULL:
        return True
    topic.leftover.message = NULL
    topic.lacking = None
    return pass_on(topic, &entry, topic.leftover_copy, channels)


cdef void flow_drop_leftover(Topic topic) noexcept:
    if topic.leftover.message is not NULL:
        message_unref(topic.leftover.message)
        topic.leftover.message = NULL
        topic.lacking = None


# ---------------------------------------------------------------------- places of messages from disk

cdef void flow_commit_began(Topic topic) noexcept:
    if topic.backlog.disk is not None and topic.leftover.message is NULL:
        topic.copied_serial = topic.backlog.disk.unacked.serial


cdef void flow_commit_ended(Topic topic, int error) noexcept:
    """The copies of messages read earlier are written, unless a channel failed."""
    if topic.stuck == 0 and error == 0 and topic.backlog.disk is not None:
        check_copies(topic)
        topic.backlog.disk.done_before(topic.copied_serial)
    if topic.waiting:
        flow_readable(topic)
    if topic.held and not topic.storage.lags(topic):
        flow_let_publish(topic, topic.allowance)


cdef void flow_copies_done(Topic topic) noexcept:
    if topic.stuck == 0 and topic.backlog.disk is not None and topic.leftover.message is NULL:
        check_copies(topic)
        topic.backlog.disk.done_before(topic.backlog.disk.unacked.serial)


cdef void check_copies(Topic topic) noexcept:
    # RULE: a topic gives up places only when none of their copies is in a buffer. If no write runs and none has failed,
    # the messages in a channel's buffer came after the commit began.
    cdef Channel channel
    if not CHECKS:
        return
    for channel in topic.fan:
        if channel.backlog.disk is not None and (channel.backlog.disk.writing is not NULL
                                                 or channel.backlog.disk.write_error):
            broken("a topic gives up places whose copies are not written")


cdef void flow_drop_places(Topic topic) noexcept:
    """Nothing else owns and ends these places."""
    if topic.backlog.disk is not None:
        topic.backlog.disk.done_before(INT64_MAX)


# ====================================================================== settled
# Redriven or dropped dead letters. See the .pxd.

cdef bytes NAME = SETTLED


cdef int restore_settled(Topic topic) except -1:
    topic.settled = None if topic.earlier is None else topic.earlier.cursor(topic.log, NAME, topic)
    return 0


cdef int64_t begin_of(Topic topic) noexcept:
    """The first offset that may be unsettled."""
    cdef int64_t first = topic.log.first_offset()
    return first if topic.settled is None else max(first, topic.settled.next)


def waiting(Topic topic not None) -> int:
    """Count of unsettled messages in the topic's log."""
    cdef int64_t begin = begin_of(topic), count
    cdef RangeWalk walk
    cdef Range *skip
    count = segments_rank(&topic.log.segments, topic.log.next) - segments_rank(&topic.log.segments, begin)
    if topic.settled is None:
        return count
    walk = offsets_from(&topic.settled.skips, begin)
    skip = offsets_next(&topic.settled.skips, &walk)
    while skip is not NULL:
        count -= (segments_rank(&topic.log.segments, min(skip.end, topic.log.next))
                  - segments_rank(&topic.log.segments, max(skip.first, begin)))
        skip = offsets_next(&topic.settled.skips, &walk)
    return max(count, 0)


def unsettled(Topic topic not None, int64_t offset) -> tuple[int, int] | None:
    """The first unsettled messages from an offset on: their first offset, and the one after the last. None: there are
    none."""
    cdef int64_t first = max(offset, begin_of(topic)), end = topic.log.next
    cdef RangeWalk walk
    cdef Range *skip
    if topic.settled is not None:
        walk = offsets_from(&topic.settled.skips, first)
        skip = offsets_next(&topic.settled.skips, &walk)
        while skip is not NULL and skip.first <= first:
            first = max(first, skip.end)
            skip = offsets_next(&topic.settled.skips, &walk)
        if skip is not NULL:
            end = min(end, skip.first)
    return (first, end) if first < end else None


def settle(Topic topic not None, offsets: list[int]):
    """Marks these messages, in ascending order, as settled. Broker.recorded() waits until the journal has it."""
    cdef int64_t first = -1, end = -1, offset
    if topic.settled is None:
        topic.settled = new_cursor(topic.log, NAME, topic, False, topic.log.first_offset())
    for offset in offsets:
        if offset != end:
            topic.settled.skip(first, end)
            first = offset
        end = offset + 1
    topic.settled.skip(first, end)
    trim(topic.settled)
    if not topic.channels and not topic.log.held and topic.settled.next > topic.place.next:
        topic.place.move(topic.settled.next)        # retention may remove settled messages
        topic.owner.on_aging(topic)


cdef void trim(Cursor cursor) noexcept:
    """Moves the cursor over settled and removed messages, so that these need no range."""
    cdef RangeWalk walk
    cdef Range *skip
    if cursor.next < cursor.log.first_offset():
        cursor._step_over(cursor.log.first_offset())
    while cursor.skips.count:
        memset(&walk, 0, sizeof(walk))
        skip = offsets_next(&cursor.skips, &walk)
        if skip.end <= cursor.next:
            offsets_remove(&cursor.skips, skip.first, skip.end)
        elif skip.first <= cursor.next:
            cursor._advance(skip.end)
        else:
            break


# ====================================================================== logged

cdef int64_t ranks_between(TopicLog log, int64_t begin, int64_t end) noexcept:
    """Records from one offset up to another; below 0 if they are in reverse order."""
    return segments_rank(&log.segments, end) - segments_rank(&log.segments, begin)


cdef int attach_log(Topic topic, TopicLog log, Earlier earlier, rule) except -1:
    cdef Channel channel
    cdef object place = earlier.topic_cursor if earlier is not None else None
    topic.log = log
    log.owner = topic
    log.commit = topic.commit
    topic.earlier = earlier
    topic.place = TopicPlace(log, log.first_offset() if place is None else min(<int64_t> place, log.next))
    restore_settled(topic)
    for channel in topic.fan:
        give_cursor(topic, channel, log.next)
    follow_rule(topic, rule)
    if topic.paused:
        hold_log(topic)
    elif not topic.started:
        log.hold(log.next)      # for channels that do not exist yet
    return 0


cdef int follow_rule(Topic topic, rule) except -1:
    cdef Channel channel
    topic.rule = rule
    topic.logs = rule.storage == "log"
    # A rule may outlive the daemon's option.
    topic.log.syncs = rule.sync == "fsync" or rule.sync == "bucket" and topic.owner.logs.shipping is None
    topic.commit.ships = topic.logs and rule.sync == "bucket" and not topic.log.syncs
    topic.log.shipped(0)
    topic.most_bytes = rule.retain_bytes
    for channel in topic.fan:
        channel.log_first = not topic.logs
    storage_changed(topic)
    flow_refresh(topic)
    return 0


cdef int give_cursor(Topic topic, Channel channel, start) except -1:
    """start: where a new channel begins to read; None: at the messages hidden from channels, or at the end."""
    cdef Cursor cursor = None
    cdef int64_t begin
    if topic.earlier is not None and not channel.ephemeral:
        cursor = topic.earlier.cursor(topic.log, channel.name, channel)
    if cursor is None:
        if start is not None:
            begin = start
        elif topic.earlier is not None and topic.earlier.damaged:
            begin = 0       # its position is unknown: it reads everything
        else:
            begin = topic.log.visible if topic.channels and topic.started else topic.place.next
        begin = min(max(begin, topic.log.first_offset()), topic.log.next)
        cursor = new_cursor(topic.log, channel.name, channel, channel.ephemeral, begin)
        channel.counts.message_count += <uint64_t> max(0, ranks_between(topic.log, begin, topic.log.visible))
    channel.set_cursor(cursor, not topic.logs)
    return 0


cdef void log_grew(Topic topic, int64_t records) noexcept:
    cdef Channel channel
    if topic.log.segments.count != topic.segment_count or topic.log.delays.count:
        topic.segment_count = topic.log.segments.count
        topic.owner.on_aging(topic)
    if 0 < topic.most_bytes <= topic.log.segments.bytes and not topic.log_full:
        retain_log(topic)
    if topic.log.held:
        return
    topic.clock.refresh()
    topic.slicer.begin(topic.clock.monotonic)
    for channel in topic.fan:
        channel.on_grown(records)


cdef void hold_log(Topic topic) noexcept:
    """Hides new messages from channels until unhold_log()."""
    if topic.started and topic.channels and not topic.log.held:
        topic.place.move(topic.log.visible)
    topic.log.hold(topic.place.next)


cdef void unhold_log(Topic topic) noexcept:
    cdef Channel channel
    cdef int64_t before
    if not topic.log.held:
        return
    before = topic.log.visible
    topic.log.unhold()
    topic.clock.refresh()
    topic.slicer.begin_within(topic.clock.monotonic)
    for channel in topic.fan:
        # A channel created meanwhile may begin later.
        channel.on_grown(max(0, ranks_between(topic.log, max(before, channel.cursor.next), topic.log.visible)))


cdef void empty_log(Topic topic) noexcept:
    """Drops messages that are hidden from channels."""
    cdef Channel channel
    if topic.log.held:
        for channel in topic.fan:
            channel.cursor.skip(topic.log.visible, topic.log.next)
        topic.log.hold(topic.log.next)
        topic.place.move(topic.log.next)
    elif not topic.channels:
        topic.place.move(topic.log.next)


cdef int64_t log_depth(Topic topic) noexcept:
    """Messages that are hidden from channels."""
    cdef int64_t begin = topic.log.visible if topic.channels and topic.log.held else topic.place.next
    if topic.channels and not topic.log.held:
        return 0
    return ranks_between(topic.log, begin, topic.log.next)


cdef bint retain_log(Topic topic) except -1:
    cdef int64_t needed = needed_from(topic)
    cdef bint drops = topic.rule.overflow == "drop-oldest"
    # A log that is kept, without its own limit, is kept whole.
    if not topic.rule.keeps_log or topic.rule.retain_time > 0 or topic.most_bytes > 0:
        topic.log.retain(needed, topic.rule.retain_time, topic.rule.retain_bytes, drops)
    if topic.rule.retain_local_bytes > 0 and topic.log.history is not None:
        topic.log.history.offload(topic.log, topic.rule.retain_local_bytes)
    set_full(topic, topic.logs and not drops and 0 < topic.most_bytes <= topic.log.segments.bytes
             and topic.log.segments.items[0].end > needed)
    if not topic.logs and not (topic.rule.keeps_log and topic.log.first_offset() < topic.log.next):
        return not drop_log(topic)
    return topic.log_full or topic.log.segments.count > 1


cdef bint drop_log(Topic topic) except -1:
    if topic.logs or needed_from(topic) < topic.log.next or topic.log.unwritten_records() > 0 or topic.log.busy:
        return False
    leave_log(topic)
    return True


cdef int64_t needed_from(Topic topic) except -1:
    cdef Channel channel
    cdef int64_t needed = topic.log.next
    if topic.earlier is not None or not topic.channels or topic.log.held:
        needed = min(needed, topic.place.next)
    for channel in topic.fan:
        if channel.cursor is not None:
            needed = min(needed, channel.cursor.needed_from())
    return needed


cdef int set_full(Topic topic, bint full) except -1:
    if full != topic.log_full:
        topic.log_full = full
        topic.full_reason = ("" if not full else
                             f"the log is full: it has {topic.log.bytes} bytes, retain_bytes is {topic.most_bytes}")
        topic.owner.on_log_full(topic, full)
    return 0


cdef int leave_log(Topic topic) except -1:
    """Deletes the log: the topic is in memory now, and all messages of the log are finished."""
    cdef Channel channel
    cdef TopicLog log = topic.log
    for channel in topic.fan:
        channel.set_cursor(None, False)
    topic.log = None
    topic.place = None
    topic.settled = None
    storage_changed(topic)
    log.delete()
    topic.owner.on_log_left(topic, log)
    return 0


cdef int close_log(Topic topic) except -1:
    """For a stop; raises OSError if messages are lost."""
    cdef int64_t lost
    cdef int error
    if topic.log.unwritten_records() > 0:
        topic.commit.run()
    lost = topic.log.unwritten_records()
    # A refused publish is not lost: its client is notified.
    error = topic.log.errno if lost else topic.log.recorder.error
    path = topic.log.write_path
    topic.log.close()
    if error:
        raise OSError(error, f"{os.strerror(error)}: {lost} messages are lost", path)
    return 0


# ====================================================================== appending
# Publishing to a log.

cdef enum:
    BYTES_AT_ONCE = 1048576           # bytes of a batch to append in one step


cdef inline int refusal(Topic topic) noexcept:
    """PUT_DISK: the log accepts messages."""
    if topic.space.low or topic.log_full or topic.guids.is_short():
        return PUT_NO_SPACE
    return PUT_EXITING if topic.exiting else PUT_DISK


cdef inline int appended(Topic topic, int failed, int64_t records, int64_t body_bytes) noexcept:
    """Counts messages, if they were added to the next write; PutResult."""
    if failed < 0:
        return PUT_NO_MEMORY
    topic.message_count += <uint64_t> records
    topic.message_bytes += <uint64_t> body_bytes
    return PUT_DISK


cdef inline int append_whole(Topic topic, const char *c_payload, int64_t length, int64_t records,
                             uint32_t defer_ms) noexcept:
    """Adds messages in size-prefixed form."""
    return appended(topic, topic.log.append_batch(topic.clock.wall, c_payload, length, records, defer_ms), records,
                    length - records * SIZE_BYTES)


cdef int stage(OpenBatch batch) noexcept:
    """Copies some messages; PUT_DISK, or PUT_NO_MEMORY."""
    cdef Part part
    cdef Buffer *staged = &batch.staged
    cdef char *c_to
    cdef int64_t length, steps = STEPS
    cdef int result = PUT_DISK
    while batch.more() and steps > 0 and result == PUT_DISK:
        batch_next(batch, &part)
        steps -= 1 + <int64_t> (part.size >> SIZE_SHIFT)
        length = SIZE_BYTES + <int64_t> part.size
        if length > staged.room - staged.length and buffer_room(staged, length) < 0:
            result = PUT_NO_MEMORY
        else:
            c_to = staged.c_data + staged.length
            store_i32(c_to, <int> part.size)
            memcpy(c_to + SIZE_BYTES, part.c_body, part.size)
            staged.length += length
            staged.records += 1
        if part.message is not NULL:
            message_unref(part.message)
    return result


@cython.final
cdef class Logged(Storage):
    """The log of a topic."""

    cdef int put(self, Topic topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        cdef int result = refusal(topic)
        if result != PUT_DISK:
            return result
        return appended(topic, topic.log.append(topic.clock.wall, c_body, size, defer_ms, c_origin, origin_size), 1,
                        size)

    cdef bint put_batch(self, Topic topic, OpenBatch batch) noexcept:
        cdef Part part
        cdef int result = refusal(topic)
        if result != PUT_DISK:
            return batch.refuse(result)
        if batch.staged.records == 0:
            if batch.source == SIZED and batch.end - batch.at <= BYTES_AT_ONCE:
                result = append_whole(topic, batch.c_data + batch.at, batch.end - batch.at, batch.count,
                                      batch.defer_ms)
                return batch.end_with(result, topic.slicer)
            if batch.source == GATHERED and batch.end - batch.at == 1:
                batch_next(batch, &part)
                result = self.put(topic, part.c_body, part.size, batch.defer_ms, NULL, 0)
                message_unref(part.message)
                return batch.end_with(result, topic.slicer)
        while batch.more() and result == PUT_DISK:
            result = stage(batch)
            if batch.more() and result == PUT_DISK and topic.slicer.over():
                return False
        if result == PUT_DISK:
            result = PUT_MEMORY if batch.staged.records == 0 else append_whole(
                topic, batch.staged.c_data, batch.staged.length, batch.staged.records, batch.defer_ms)
        return batch.end_with(result, topic.slicer)

    cdef object write_path(self, Topic topic):
        return topic.log.write_path

    cdef int64_t depth(self, Topic topic) noexcept:
        return log_depth(topic)

    cdef int64_t disk_depth(self, Topic topic) noexcept:
        return max(log_depth(topic) - topic.backlog.max_memory, <int64_t> 0)

    cdef void empty(self, Topic topic) noexcept:
        empty_log(topic)

    cdef int add_channel(self, Topic topic, Channel channel, start) except -1:
        return give_cursor(topic, <Channel> channel, start)

    cdef void channel_gone(self, Topic topic) noexcept:
        if not topic.channels and not topic.log.held:
            topic.place.move(topic.log.visible)

    cdef void pause(self, Topic topic) noexcept:
        hold_log(topic)

    cdef void unpause(self, Topic topic) noexcept:
        unhold_log(topic)

    cdef int delete(self, Topic topic) except -1:
        topic.log.delete()
        return 0

    cdef int64_t close(self, Topic topic, bint written) except -1:
        close_log(topic)
        return 0


# ====================================================================== queued
# Queues in memory and on disk.

cdef bint fits(Topic topic, uint32_t defer_ms) noexcept:
    """Whether a message would stay in memory."""
    cdef Channel channel
    if not topic.direct:
        return topic.backlog.fits(defer_ms)
    for channel in topic.fan:
        if not channel.fits(defer_ms):
            return False
    return True


cdef inline int fan_out(Topic topic, Message *message, uint32_t defer_ms) noexcept:
    cdef Channel channel
    cdef int put, result = PUT_MEMORY
    for channel in topic.fan:
        message_ref(message)
        put = channel.put_deferred(message, 0, defer_ms) if defer_ms else channel.put(message, 0)
        if put == PUT_NO_MEMORY:
            message_unref(message)
            result = put
        elif put == PUT_DISK and result != PUT_NO_MEMORY:
            result = put
    if result != PUT_NO_MEMORY:
        message_unref(message)
    return result


cdef inline int put_message(Topic topic, Message *message, uint32_t defer_ms) noexcept:
    """Takes the reference."""
    cdef uint32_t size = message.size
    cdef int result
    if topic.space.low and not fits(topic, defer_ms):
        result = PUT_NO_SPACE
    elif topic.direct:
        result = fan_out(topic, message, defer_ms)
    else:
        topic.allowance -= 1
        result = topic.backlog.put(message, 0, defer_ms, False, NULL)
        if unlikely(topic.limits.watched):
            topic_waits(topic)
    if is_refused(result):
        message_unref(message)
    else:
        topic.message_count += 1
        topic.message_bytes += size
    return result


cdef inline int put_body(Topic topic, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
    cdef char c_id[16]
    cdef Message *message
    if unlikely(topic.guids.is_short()):
        return PUT_NO_SPACE
    topic.guids.next(topic.clock.wall, c_id)
    message = message_new(c_id, topic.clock.wall, c_body, size)
    return PUT_NO_MEMORY if message is NULL else put_message(topic, message, defer_ms)


cdef inline int put_part(Topic topic, const Part *part, uint32_t defer_ms) noexcept:
    if part.message is NULL:
        return put_body(topic, part.c_body, part.size, defer_ms)
    if unlikely(topic.guids.is_short()):
        message_unref(part.message)
        return PUT_NO_SPACE
    topic.guids.next(topic.clock.wall, part.message.id)
    part.message.timestamp_ns = topic.clock.wall
    return put_message(topic, part.message, defer_ms)


cdef void put_staged(Topic topic, OpenBatch batch) noexcept:
    """The topic's rule said log when the batch began, so its first messages are staged for a log."""
    cdef int64_t at = 0, size
    cdef int put
    while at < batch.staged.length and not is_refused(batch.result):
        size = load_i32(batch.staged.c_data + at)
        put = put_body(topic, batch.staged.c_data + at + SIZE_BYTES, <uint32_t> size, batch.defer_ms)
        if put == PUT_DISK or is_refused(put):
            batch.result = put
        at += SIZE_BYTES + size
    buffer_free(&batch.staged)


@cython.final
cdef class Queued(Storage):
    """The queues of a topic and its channels."""

    cdef int put(self, Topic topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        return put_body(topic, c_body, size, defer_ms)

    cdef bint put_batch(self, Topic topic, OpenBatch batch) noexcept:
        # 64 bits: a large message may go to many channels.
        cdef int64_t cost = 1 + topic.fan_count, left = STEPS
        cdef int put
        cdef Part part
        if topic.exiting:
            return batch.end_with(PUT_EXITING, topic.slicer)
        if batch.staged.records:
            put_staged(topic, batch)
        while batch.more() and not is_refused(batch.result):
            batch_next(batch, &part)
            left -= cost + (cost - (part.message is not NULL)) * <int64_t> (part.size >> SIZE_SHIFT)
            put = put_part(topic, &part, batch.defer_ms)
            if put == PUT_DISK or is_refused(put):
                batch.result = put
            if left <= 0:
                if batch.more() and (topic.slicer.over() or topic.commit.is_full()):
                    break
                left = STEPS
        once_wrote(&batch.once, batch.result)
        if batch.more() and not is_refused(batch.result):
            return False
        return batch.end_with(batch.result, topic.slicer)

    cdef bint lags(self, Topic topic) noexcept:
        return not topic.direct and topic.allowance <= 0 and flows(topic)

    cdef object write_path(self, Topic topic):
        return topic.backlog.disk.write_path

    cdef int64_t depth(self, Topic topic) noexcept:
        return topic.backlog.depth() + (topic.leftover.message is not NULL)

    cdef int64_t disk_depth(self, Topic topic) noexcept:
        return topic.backlog.disk_depth()

    cdef void empty(self, Topic topic) noexcept:
        flow_drop_leftover(topic)
        flow_drop_places(topic)
        topic.backlog.empty()

    cdef int delete(self, Topic topic) except -1:
        flow_drop_leftover(topic)
        flow_drop_places(topic)
        topic.backlog.delete()
        return 0

    cdef int64_t close(self, Topic topic, bint written) except -1:
        cdef int64_t waiting
        cdef Entry left
        if topic.backlog.disk is None:
            return 0
        if topic.leftover.message is not NULL:
            # Channels that already have it get it again; otherwise the others would never get it.
            left = topic.leftover
            message_ref(left.message)
            topic.backlog.put(left.message, left.attempts, left.defer_ms, True, NULL)
            flow_drop_leftover(topic)
        waiting = topic.backlog.spill()
        if written:
            topic.backlog.disk.done_before(INT64_MAX)
        topic.backlog.close()
        return waiting


cdef Queued QUEUES = Queued()
cdef Logged LOG = Logged()


cdef void storage_changed(Topic topic) noexcept:
    topic.storage = LOG if topic.logs else QUEUES
    topic.storages = (QUEUES,) if topic.log is None else (LOG, QUEUES)
