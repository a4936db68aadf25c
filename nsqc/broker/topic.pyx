"""A topic: publishes to its storage and channels; publishers that wait for room. See the .pxd."""

cimport cython
import os
from bisect import insort
from libc.errno cimport ENOMEM, ESHUTDOWN
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from nsqc.broker import refusals
from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel, unlikely
from nsqc.broker.figures cimport DedupeFigures, TopicCounts, TopicFigures, TopicLevels, figure_names, figures_tuple
from nsqc.broker.leaving cimport admission, admits_batch, delete_channel, has_room, overflows, set_bounded
from nsqc.broker.storage cimport (drop_log, flow_begin, flow_commit_began, flow_commit_ended, flow_copies_done,
                                  flow_drop_leftover, flow_let_publish, flow_readable, flow_refresh, flow_slice,
                                  flow_unreadable, follow_rule, log_grew, needed_from, ranks_between, retain_log,
                                  storage_changed)
from nsqc.store.backlog cimport (PUT_DISK, PUT_EXITING, PUT_FULL, PUT_KNOWN, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE,
                                 PUT_RUNNING, PUT_TAKEN, Backlog, is_refused)
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.log.frame cimport buffer_free
from nsqc.store.log.recovery cimport drop_ids, restore_ids
from nsqc.store.memory cimport Clock, monotonic_ns
from nsqc.store.message cimport GuidFactory, fifo_free
from nsqc.store.publishids cimport ID_CLAIMED, ID_COLLECTED, ID_KNOWN, ID_NO_MEMORY, ID_RUNNING
from nsqc.store.work cimport STEPS, CallWaiter, Commit, CommitSchedule, LoopWork, Slicer, Trash


# ====================================================================== openbatch

@cython.final
cdef class OpenBatch:
    """The messages of a multi-publish."""

    def __dealloc__(self):
        fifo_free(&self.gathered)
        buffer_free(&self.staged)

    @staticmethod
    def sized(bytes body not None, int64_t end, uint32_t defer_ms=0) -> OpenBatch:
        """The messages in the binary body of a multi-publish.

        end: end of the messages, from nsqc.wire.parser.check(); defer_ms: the delay of each message.
        """
        cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
        self.begin(None, defer_ms)
        self.body = body
        self.take_sized(body, SIZE_BYTES, end, load_i32(body))
        return self

    @staticmethod
    def lines(bytes body not None, uint32_t defer_ms=0) -> OpenBatch:
        """The non-empty lines of a text."""
        cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
        self.begin(None, defer_ms)
        self.body = body
        self.source = LINES
        self.c_data = body
        self.end = len(body)
        self.at = next_line(self.c_data, 0, self.end)
        return self

    cdef void begin(self, Topic topic, uint32_t defer_ms) noexcept:
        self.topic = topic
        self.defer_ms = defer_ms
        self.result = PUT_MEMORY
        self.open = self.admitted = False
        memset(&self.once, 0, sizeof(Once))

    cdef void take_sized(self, const char *c_data, int64_t at, int64_t end, int64_t count) noexcept:
        self.source = SIZED
        self.c_data = c_data
        self.at = at
        self.end = end
        self.count = count

    cdef void take_gathered(self) noexcept:
        self.source = GATHERED
        self.at = 0
        self.end = self.gathered.count

    cdef void measure(self, int64_t *count, int64_t *body_bytes) noexcept:
        cdef int64_t at = self.at, length
        count[0] = self.count
        body_bytes[0] = self.end - self.at - self.count * SIZE_BYTES
        if self.source == GATHERED:
            count[0] = self.gathered.count
            body_bytes[0] = self.gathered.bytes
        elif self.source == LINES:
            count[0] = body_bytes[0] = 0
            while at < self.end:
                length = line_bytes(self.c_data + at, self.end - at)
                count[0] += 1
                body_bytes[0] += length
                at = next_line(self.c_data, at + length, self.end)

    cdef bint refuse(self, int result) noexcept:
        self.result = result
        self.open = self.admitted = False
        return True

    cdef bint end_with(self, int result, Slicer slicer) noexcept:
        cdef Trash trash
        self.result = result
        self.at = self.end
        self.open = False
        if self.staged.c_data is not NULL:
            buffer_free(&self.staged)
        if self.gathered.count:
            trash = Trash.new(slicer)
            trash.take_fifo(&self.gathered)
            trash.start()
        return True


# ====================================================================== storage
cdef class Storage:
    """Stores the messages of a topic."""

    cdef int put(self, Topic topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        return 0

    cdef bint put_batch(self, Topic topic, OpenBatch batch) noexcept:
        return True

    cdef bint lags(self, Topic topic) noexcept:
        return False

    cdef object write_path(self, Topic topic):
        raise NotImplementedError

    cdef int64_t depth(self, Topic topic) noexcept:
        return 0

    cdef int64_t disk_depth(self, Topic topic) noexcept:
        return 0

    cdef void empty(self, Topic topic) noexcept:
        pass

    cdef int add_channel(self, Topic topic, Channel channel, start) except -1:
        return 0

    cdef void channel_gone(self, Topic topic) noexcept:
        pass

    cdef void pause(self, Topic topic) noexcept:
        pass

    cdef void unpause(self, Topic topic) noexcept:
        pass

    cdef int delete(self, Topic topic) except -1:
        return 0

    cdef int64_t close(self, Topic topic, bint written) except -1:
        return 0


# ====================================================================== topic

cdef TopicFigures no_topic_figures
cdef DedupeFigures no_dedupe
TOPIC_FIGURES: tuple[str, ...] = figure_names(no_topic_figures) + figure_names(no_dedupe)
cdef tuple NO_DEDUPE = (None,) * len(figure_names(no_dedupe))


@cython.final
cdef class Topic:
    """One topic. Created by Broker.get_topic()."""

    def __init__(self, bytes name not None, bint ephemeral, DiskQueue disk, int64_t max_memory,
                 CommitSchedule schedule not None, Clock clock not None, GuidFactory guids not None,
                 Broker owner not None):
        self.name = name
        self.ephemeral = ephemeral
        self.clock = clock
        self.commit = Commit.new(schedule, self)
        self.backlog = Backlog.new(disk, max_memory, False, clock, self.commit, self)
        self.slicer = schedule.slicer
        self.space = schedule.space
        self.guids = guids
        self.owner = owner
        self.channels = {}
        self.fan = []
        self.held = []
        self.gone = []
        self.bound_reason = ""
        self.crowd = []
        storage_changed(self)

    def __str__(self):
        return f"topic {self.name.decode()}"

    def __dealloc__(self):
        flow_drop_leftover(self)
        free(self.retired)
        free(self.limited)

    # ------------------------------------------------------------------ publishing

    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
        cdef int result = admission(self, 1, size)
        return result if is_refused(result) else self.storage.put(self, c_body, size, defer_ms, NULL, 0)

    cdef int publish_dead(self, const char *c_body, uint32_t size, const char *c_origin, uint32_t origin_size,
                          int64_t more, int64_t more_bytes) noexcept:
        cdef int result = admission(self, 1 + more, size + more_bytes)
        return result if is_refused(result) else self.storage.put(self, c_body, size, 0, c_origin, origin_size)

    cdef int publish_once(self, Once *once, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
        cdef int result = once_begins(self, once)
        if result != GO:
            return result
        result = self.publish_bytes(c_body, size, defer_ms)
        once_ended(self, once, result)
        return result

    cdef bint publish_slice(self, OpenBatch batch) noexcept:
        cdef int result
        if batch.once.asked and batch.once.claim == 0:
            result = once_begins(self, &batch.once)
            if result == PUT_TAKEN:
                batch.open = True
                return False
            if result != GO:
                return batch.end_with(result, self.slicer)
        # A batch that was begun is published whole, even if others fill the queue meanwhile.
        if unlikely(self.bounded) and not batch.admitted and not admits_batch(self, batch):
            once_ended(self, &batch.once, PUT_FULL)
            return batch.refuse(PUT_FULL)
        batch.admitted = True
        batch.open = not self.storage.put_batch(self, batch)
        if batch.once.claim and not batch.open:
            once_ended(self, &batch.once, batch.result)
        return not batch.open

    cdef bint holds(self, LoopWork publisher) noexcept:
        if not self.commit.is_full() and not self.storage.lags(self) and not (self.bounded and overflows(self)):
            return False
        self.held.append(publisher)
        return True

    def publish(self, bytes body not None, uint32_t defer_ms=0, bytes id=None) -> int:
        """Publishes one message. id: if the topic remembers ids, it is stored once.

        0; the errno, NO_SPACE, FULL or DRAINING if it was not accepted; PENDING: see when_written(), or RUNNING:
        see when_running_written(). TAKEN: another client is publishing that id, ask again.
        """
        cdef Once once
        if self.owner.draining:
            return DRAINING
        self.clock.refresh()
        if id is not None and once_new(self, &once, id, len(id)):
            return self._settle(self.publish_once(&once, body, <uint32_t> len(body), defer_ms))
        return self._settle(self.publish_bytes(body, <uint32_t> len(body), defer_ms))

    def last_id(self) -> bytes:
        """The id of the last published message, for a topic that is not in a log."""
        return self.guids.last()

    def last_index(self) -> int:
        """For a log: the index of the last published message within its commit; see TopicLog.id_written()."""
        return self.log.unwritten_records() - 1

    def set_id(self, OpenBatch batch not None, bytes id not None):
        """Sets the id of a batch, before its first slice."""
        once_new(self, &batch.once, id, len(id))

    def publish_batch(self, OpenBatch batch not None) -> int:
        """Publishes messages until the slice is over; batch.open: some remain. Returns as publish()."""
        batch.result = PUT_MEMORY
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        self.publish_slice(batch)
        return self._settle(batch.result)

    def drop_batch(self, OpenBatch batch not None):
        """Abandons a batch: a slice has raised."""
        once_dropped(self, &batch.once)
        batch.end_with(PUT_EXITING, self.slicer)

    cdef object _settle(self, int result):
        if result == PUT_NO_MEMORY:
            return ENOMEM
        if result == PUT_EXITING:
            return ESHUTDOWN
        if result == PUT_NO_SPACE:
            return NO_SPACE
        if result == PUT_RUNNING:
            return RUNNING
        if result == PUT_TAKEN:
            return TAKEN
        if result == PUT_FULL:
            return FULL
        return PENDING if result == PUT_DISK else 0

    def when_written(self, call: Callable[[int], object]):
        """Calls call(errno or 0) when all messages published so far are written."""
        self.commit.wait(CallWaiter(call))

    def when_running_written(self, call: Callable[[int], object]):
        """The same for the running write; only right after RUNNING."""
        self.commit.wait_running(CallWaiter(call))

    # ------------------------------------------------------------------ flow from the backlog to the channels

    def resume(self):
        """Retries after memory or the disk failed. Called by the loop."""
        self.retrying = False
        flow_refresh(self)

    cdef bint run(self) noexcept:
        if self.exiting:
            return self._delete_slice()
        # During a stop, messages are as safe here as in the channels.
        if not self.owner.closing:
            flow_slice(self)
        return False        # flow_slice() has asked for another slice if necessary

    cdef void on_readable(self) noexcept:
        flow_readable(self)

    cdef void on_unreadable(self) noexcept:
        flow_unreadable(self)

    cdef void on_commit_began(self) noexcept:
        flow_commit_began(self)
        if self.ids is not None:
            self.ids.commit_began()

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        if self.ids is not None:
            self.ids.commit_ended(error)
        flow_commit_ended(self, error)
        if error == 0 and self.owner.failing:
            self.owner.on_written(None, None, 0)

    def start(self):
        """Lets messages flow: all channels of the last run exist."""
        self.started = True
        if self.earlier is not None:
            # Channels that nsqd.dat lacked when the daemon was killed.
            for name in self.earlier.channels:
                self.get_channel(name)
            self.earlier = None
        if not self.paused:
            self._unpause()
        flow_begin(self)

    # ------------------------------------------------------------------ channels

    def channel(self, bytes name not None) -> Channel | None:
        """The channel of that name, or None."""
        return self.channels.get(name)

    def get_channel(self, bytes name not None, start: int | None = None) -> Channel:
        """The channel of that name, created if it does not exist.

        start: the offset in the log where a new channel begins; None: at the messages held for it, or at the next one.
        """
        cdef Channel channel = self.channels.get(name)
        cdef Storage storage
        if channel is None:
            channel = self.owner.make_channel(self, name)
            for storage in self.storages:
                storage.add_channel(self, channel, start)
            self.channels[name] = channel
            self.set_fan()
            self.owner.on_channel_created(self, channel)
            flow_begin(self)
        return channel

    def set_fan(self):
        """Call it after its channels, or their disk queues, have changed."""
        cdef Channel channel
        self.fan = list(self.channels.values())
        self.fan_count = len(self.fan)
        if self.backlog.disk is not None:
            disks = [channel.backlog.disk for channel in self.fan]
            self.backlog.disk.copies = [disk for disk in disks if disk is not None]
        set_bounded(self)

    def delete_channel(self, bytes name not None) -> bool:
        """Deletes a channel with its messages; False if it does not exist."""
        cdef Channel channel = self.channels.pop(name, None)
        cdef Storage storage
        if channel is None:
            return False
        if channel.stuck:
            self.stuck -= 1
        if not self.exiting:
            self.set_fan()
            flow_refresh(self)
            for storage in self.storages:
                storage.channel_gone(self)
        self.owner.on_channel_deleted(self, channel)
        delete_channel(channel)
        if not self.channels and self.ephemeral and not self.exiting:
            self.owner.on_last_channel_gone(self)
        return True

    cdef void on_moved(self) noexcept:
        if self.held and not self.storage.lags(self):
            flow_let_publish(self, self.allowance)

    cdef void on_room(self) noexcept:
        room_made(self)

    cdef int on_clients_gone(self, Channel channel) except -1:
        self.delete_channel(channel.name)
        return 0

    # ------------------------------------------------------------------ administration

    def pause(self):
        """Keeps messages in the topic."""
        cdef Storage storage
        self.paused = True
        for storage in self.storages:
            storage.pause(self)
        flow_refresh(self)

    def unpause(self):
        """Lets messages flow to the channels again."""
        self.paused = False
        self._unpause()
        flow_begin(self)

    def _unpause(self):
        cdef Storage storage
        for storage in self.storages:
            storage.unpause(self)

    def empty(self):
        """Drops the messages in the topic's own backlog."""
        cdef Storage storage
        for storage in self.storages:
            storage.empty(self)
        self.waiting = False
        flow_refresh(self)

    def delete(self):
        """Deletes the channels and all messages, in slices. See when_gone()."""
        self.exiting = True
        self.direct = False
        flow_let_publish(self, INT64_MAX)
        self.fan = []
        self.fan_count = 0
        set_bounded(self)
        room_end(self)
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        if self._delete_slice():
            self.slicer.add(self)

    cdef bint _delete_slice(self) noexcept:
        cdef Storage storage
        while self.channels:
            self.delete_channel(next(iter(self.channels)))
            if self.channels and self.slicer.over():
                return True
        if self.gone is not None:
            for storage in self.storages:
                storage.delete(self)
            self.owner.on_topic_deleted(self)
            gone, self.gone = self.gone, None
            for call in gone:
                call()
            self.commit.owner = None
        return False

    def when_gone(self, call: Callable[[], object]):
        """Calls call() when the deletion is complete."""
        if self.gone is None:
            call()
        else:
            self.gone.append(call)

    def close(self, bint written) -> tuple[int, dict[bytes, int]]:
        """For a stop, after the channels: writes waiting messages to disk. written: the channels have written theirs.

        Returns the number of messages that were in memory, and the delays, in milliseconds by id, that the disk format
        cannot store. Raises OSError.
        """
        cdef Storage storage
        cdef int64_t waiting = 0
        self.exiting = True
        self.direct = False
        for storage in self.storages:
            waiting += storage.close(self, written)
        return waiting, dict(self.backlog.delays)

    def restore_delays(self, delays: dict[bytes, int]):
        """Sets the delays, in milliseconds by id, of messages that an earlier run wrote to disk."""
        self.backlog.delays.update(delays)

    # ------------------------------------------------------------------ the log

    def set_rule(self, rule: TopicRule):
        """Applies a changed rule; the topic has a log."""
        follow_rule(self, rule)

    def forget_ids(self) -> bool:
        """Forgets expired ids; returns whether there are more."""
        if self.ids is None:
            return False
        self.clock.refresh()
        return self.ids.expire(self.clock.monotonic, STEPS)

    def retain(self) -> bool:
        """Removes old segments of the log, by its rule; returns whether to call it again later."""
        return (self.log is not None and retain_log(self)) or (self.ids is not None and self.ids.count > 0)

    def drop_log(self) -> bool:
        """Deletes the log that the topic has switched from; False: it is in use."""
        return drop_log(self)

    @property
    def log_unfinished(self) -> int:
        """Count of the log's messages that a channel, or the topic itself, has not finished."""
        return ranks_between(self.log, needed_from(self), self.log.next)

    def refused(self, int failure):
        """Counts a refused publish; failure: an errno, NO_SPACE, FULL or DRAINING."""
        if failure == DRAINING:
            self.owner.on_refused(refusals.DRAINING)
        elif failure == FULL:
            self.owner.on_refused(refusals.FULL)
            self.owner.on_bound(self)
        elif failure != NO_SPACE:
            self.owner.on_refused(refusals.of_error(failure))
        elif self.guids.is_short():
            self.owner.on_refused(refusals.WRITE_FAILED)
        else:
            self.owner.on_refused(refusals.LOG_FULL if self.log_full else refusals.NO_SPACE)

    def refusal(self, int failure=NO_SPACE) -> str:
        """Why it accepts nothing now; failure: NO_SPACE or FULL."""
        if failure == FULL:
            return self.bound_reason
        if self.guids.is_short():
            return self.guids.reason
        return self.full_reason if self.log_full else self.space.reason

    cdef object why(self, int result):
        if result == PUT_FULL or result == PUT_NO_SPACE:
            return self.refusal(FULL if result == PUT_FULL else NO_SPACE)
        return "it is being deleted" if result == PUT_EXITING else os.strerror(ENOMEM)

    cdef void on_appended(self, int64_t records) noexcept:
        log_grew(self, records)

    cdef void on_idle(self) noexcept:
        cdef Channel channel
        for channel in self.fan:
            if channel.cursor is not None:
                channel.cursor.release()

    # ------------------------------------------------------------------ failed writes

    cdef void on_written(self, int error, int64_t records, int64_t body_bytes) noexcept:
        """If the backlog or log could not be written, it has removed the messages, so they do not count."""
        if error == 0:
            if self.owner.failing:
                self.owner.on_written(self, None, 0)
            return
        self.message_count -= <uint64_t> records
        self.message_bytes -= <uint64_t> body_bytes
        self.taken_count += <uint64_t> records
        self.taken_bytes += <uint64_t> body_bytes
        self.waiting = False        # it may have waited for these messages
        flow_refresh(self)
        self.owner.on_written(self, None, error)

    cdef void on_channel_written(self, Channel channel, int error, bint stuck) noexcept:
        """A stuck channel keeps its messages, and this topic holds publishers until the channel can write again."""
        self.stuck += (error != 0) - stuck
        if error == 0 and self.commit.is_clean() and self._none_out():
            flow_copies_done(self)     # otherwise a disk full of only this topic's files would never empty
        if error == 0 or not stuck:
            flow_refresh(self)
        self.owner.on_written(self, channel, error)

    def _none_out(self) -> bool:
        """Whether no channel has messages in flight or deferred, which may be in this topic's files only."""
        cdef Channel channel
        for channel in self.fan:
            if (channel.timeouts.count or channel.delayed.count or channel.front.count or channel.dead.count
                    or channel.sent.count or channel.again.heap.count):
                return False
        return True

    # ------------------------------------------------------------------ metrics

    cdef int64_t count_waiting(self) noexcept:
        cdef Storage storage
        cdef int64_t count = 0
        for storage in self.storages:
            count += storage.depth(self)
        return count

    cdef int64_t count_on_disk(self) noexcept:
        cdef Storage storage
        cdef int64_t count = 0
        for storage in self.storages:
            count += storage.disk_depth(self)
        return count

    cdef TopicLevels levels(self) noexcept:
        return TopicLevels(self.count_waiting(), self.count_on_disk())

    cdef TopicCounts counts(self) noexcept:
        return TopicCounts(self.message_count, self.message_bytes, self.expired_count, self.overflow_count)

    cdef TopicCounts metered(self) noexcept:
        cdef TopicCounts counts = self.counts()
        counts.message_count += self.taken_count
        counts.message_bytes += self.taken_bytes
        return counts

    cdef DedupeFigures dedupe(self) noexcept:
        return DedupeFigures(self.ids.count, <int64_t> self.deduplicated, <int64_t> self.ids.forgotten)

    def figures(self) -> tuple[int | None, ...]:
        """The numbers of /stats, in the order of TOPIC_FIGURES. None: the topic does not remember ids."""
        cdef TopicFigures figures = TopicFigures(self.levels(), self.counts())
        cdef DedupeFigures dedupe
        if self.ids is None:
            return figures_tuple(&figures, sizeof(figures)) + NO_DEDUPE
        dedupe = self.dedupe()
        return figures_tuple(&figures, sizeof(figures)) + figures_tuple(&dedupe, sizeof(dedupe))

    @property
    def depth(self) -> int:
        """Messages in the topic's own backlog."""
        return self.count_waiting()

    @property
    def backend_depth(self) -> int:
        """Those of them on disk."""
        return self.count_on_disk()

    @property
    def in_log(self) -> bool:
        """Whether it publishes to a log."""
        return self.logs

    @property
    def full(self) -> bool:
        """Whether large publishes should wait: the next commit is large enough."""
        return self.commit.is_full()

    @property
    def disk(self) -> DiskQueue | None:
        """The DiskQueue of the backlog; None: no disk."""
        return self.backlog.disk

    @property
    def probe_path(self) -> str:
        """The file that receives messages."""
        return self.storage.write_path(self)


# ====================================================================== room

# A periodic check finds room that no delivery makes: retention, an expiry, a changed rule, a drain.
cdef int64_t LOOK_NS = 50000000
cdef int64_t ROUND_NS = 500000      # timers of the loop have steps of a millisecond
cdef int64_t waited = 0

cdef enum:
    AT_ONCE = 64                    # publishers that retry in one loop iteration: thousands may have the same deadline


cdef bint room_helps(Topic topic, int result) noexcept:
    if topic.exiting:
        return False
    if result == PUT_NO_SPACE:
        topic.bound_count = topic.bound_bytes = 0       # a full log has room for nothing
        return topic.log_full
    return result == PUT_FULL and not topic.bound_lasts


cdef void room_wait(Topic topic, LoopWork publisher, int64_t until_ns) noexcept:
    global waited
    waited += 1
    # The number breaks ties, as publishers cannot be compared.
    insort(topic.crowd, (until_ns, waited, publisher, topic.bound_count, topic.bound_bytes))
    topic.crowded = True
    if not topic.looking:
        look_later(topic, False)


cdef void room_leave(Topic topic, LoopWork publisher) noexcept:
    topic.crowd = [waiting for waiting in topic.crowd if waiting[2] is not publisher]
    topic.crowded = len(topic.crowd) > 0


cdef void room_made(Topic topic) noexcept:
    """Has publishers retry while there is room, some at once."""
    cdef int64_t count = 0, body_bytes = 0
    cdef int left = AT_ONCE
    cdef LoopWork publisher
    while left and topic.crowd and not topic.log_full:
        _, _, publisher, its_count, its_bytes = topic.crowd[0]
        count += <int64_t> its_count
        body_bytes += <int64_t> its_bytes
        if topic.bounded and not has_room(topic, count, body_bytes, False):
            break
        del topic.crowd[0]
        topic.slicer.add(publisher)
        left -= 1
    topic.crowded = len(topic.crowd) > 0


cdef void room_end(Topic topic) noexcept:
    """All retry: the topic is being deleted."""
    try:
        _look(topic)
    except Exception as error:
        topic.slicer.loop.call_exception_handler({"message": "publishers that wait", "exception": error})


cdef int look_later(Topic topic, bint soon) except -1:
    cdef int64_t left_ns
    loop = topic.slicer.loop
    topic.looking = loop is not None and topic.crowded
    if topic.looking:
        left_ns = 0 if soon else min(LOOK_NS, <int64_t> topic.crowd[0][0] - monotonic_ns())
        loop.call_later((max(left_ns, <int64_t> 0) + ROUND_NS) / 1e9, _look, topic)
    return 0


def _look(Topic topic not None):
    """Has publishers retry whose timeout has passed, and those that there is room for."""
    cdef LoopWork publisher
    cdef int64_t now = monotonic_ns()
    cdef int left = AT_ONCE
    cdef bint ends = topic.exiting or topic.owner.draining
    while left and topic.crowd and (ends or topic.crowd[0][0] <= now):
        publisher = topic.crowd[0][2]
        del topic.crowd[0]
        topic.slicer.add(publisher)
        left -= 1
    topic.crowded = len(topic.crowd) > 0
    if left:
        room_made(topic)
    look_later(topic, left == 0)


@cython.final
cdef class Room(LoopWork):
    """The publish that was refused last, waiting for room. Calls call() when there is some, or at until_ns (monotonic).
    """

    def __init__(self, Topic topic not None, int64_t until_ns, call: Callable[[], object]):
        self.topic = topic
        self.call = call
        room_wait(topic, self, until_ns)

    cdef bint run(self) noexcept:
        self.call()
        return False

    def leave(self):
        """Stops waiting."""
        room_leave(self.topic, self)


def helps(Topic topic not None, bint full) -> bool:
    """Whether the last refused publish, with FULL or NO_SPACE, may succeed once messages have left."""
    return room_helps(topic, PUT_FULL if full else PUT_NO_SPACE)


# ====================================================================== publishes with an id

cdef bint once_new(Topic topic, Once *once, const char *c_id, Py_ssize_t length) noexcept:
    memset(once, 0, sizeof(Once))
    if topic.ids is not None:
        topic.ids.hash(c_id, length, &once.id)
        once.asked = True
    return once.asked


cdef int once_begins(Topic topic, Once *once) noexcept:
    cdef int verdict
    if topic.exiting:
        return PUT_EXITING
    if topic.ids is None:       # the rule changed meanwhile
        once.asked = False
        return GO
    if topic.logs and topic.log.reserve_ids(topic.ids.opened + 1) < 0:
        return PUT_NO_MEMORY
    if topic.ids.count == 0:
        topic.owner.on_aging(topic)      # so that they are forgotten even without further publishes
    verdict = topic.ids.claim(&once.id, topic.clock.monotonic, topic.commit.serial, &once.claim)
    if verdict == ID_CLAIMED:
        once.failures = topic.ids.failures
        return GO
    if verdict == ID_NO_MEMORY:
        return PUT_NO_MEMORY
    if verdict == ID_KNOWN or verdict == ID_COLLECTED or verdict == ID_RUNNING:
        topic.deduplicated += 1
        if verdict == ID_KNOWN and topic.commit.has_unanswered():
            verdict = ID_RUNNING
        return PUT_KNOWN if verdict == ID_KNOWN else PUT_DISK if verdict == ID_COLLECTED else PUT_RUNNING
    return PUT_TAKEN


cdef void once_ended(Topic topic, Once *once, int result) noexcept:
    cdef PublishIds ids = topic.ids
    if ids is None or once.claim == 0:
        return
    if is_refused(result) or once.wrote and once.failures != ids.failures:
        ids.release(once.claim)
    elif result == PUT_DISK or once.wrote and topic.commit.is_due():
        ids.keep_if_collected(once.claim, topic.commit.serial)
        if topic.logs:
            topic.log.add_id(&once.id)
    elif once.wrote and topic.commit.running:
        ids.keep_if_running(once.claim, topic.commit.serial)
    else:
        ids.keep(once.claim)
    once.claim = 0


cdef void once_dropped(Topic topic, Once *once) noexcept:
    if once.claim and topic.ids is not None:
        topic.ids.release(once.claim)
    once.claim = 0


cdef int follow_dedupe(Topic topic, int64_t window_ns, int64_t limit, object opened) except -1:
    cdef bint restores = opened is not None and topic.ids is None and topic.log.id_key[0] != 0
    if window_ns <= 0:
        topic.ids = None
        if topic.log is not None:
            topic.log.remember(0, 0, NULL)
        if restores:
            drop_ids(topic.log)
        return 0
    topic.clock.refresh()
    if topic.ids is not None:
        topic.ids.set_rule(window_ns, limit)
    else:
        topic.ids = PublishIds(window_ns, limit, (<char *> topic.log.id_key)[:16] if restores else None)
    if restores:
        restore_ids(topic.log, topic.ids)
        if topic.ids.count:
            topic.owner.on_aging(topic)
    if topic.log is not None:
        topic.log.remember(window_ns, topic.ids.limit, topic.ids.key)
    return 0
