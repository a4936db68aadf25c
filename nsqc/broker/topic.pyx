"""A topic: accepts messages and fans them out to its channels."""

cimport cython
from libc.errno cimport ENOMEM, ESHUTDOWN
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memset

from nsqc.broker.appending cimport append, append_lines, append_slice
from nsqc.broker.bounds cimport admits, admits_batch, admits_lines, set_bounded, set_limits, topic_expire, topic_waits
from nsqc.broker.channel cimport Channel
from nsqc.broker.channelstate cimport unlikely
from nsqc.broker.channelend cimport delete_channel
from nsqc.broker.figures cimport TopicLevels
from nsqc.broker.leftover cimport Leftover
from nsqc.broker.logged cimport (attach_log, close_log, drop_log, empty_log, follow_rule, give_cursor, hold_log,
                                 log_depth, log_grew, needed_from, ranks_between, retain_log, unhold_log)
from nsqc.broker.room cimport room_end, room_made
from nsqc.broker.seams cimport Publisher, TopicOwner
from nsqc.broker.publishonce cimport GO, follow_dedupe, once_begins, once_dropped, once_ended, once_new, once_wrote
from nsqc.broker.topicstate cimport Batch, Once, OpenBatch, TopicState
from nsqc.store.backlog cimport (PUT_DISK, PUT_EXITING, PUT_FULL, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE, PUT_RUNNING,
                                 PUT_TAKEN, Backlog, BacklogOwner, CallWaiter, Commit, CommitSchedule, is_refused)
from nsqc.store.clock cimport Clock
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.fifo cimport Entry, fifo_pop
from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.earlier cimport Earlier
from nsqc.store.log.buffer cimport Buffer, buffer_free
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.message cimport message_new, message_ref, message_unref
from nsqc.store.rules cimport CHECKS, broken
from nsqc.store.slices cimport SIZE_SHIFT, STEPS
from nsqc.wire.hton cimport load_i32

from nsqc.broker import refusals

cdef enum:
    SIZE_BYTES = 4              # of a batch's count, and of the size before each message
    LEAST_ALLOWANCE = 64        # messages that a topic accepts before it has passed any on

# Results of a publish that are not an errno.
PENDING = -1        # a commit decides
RUNNING = -2        # the commit under way decides
TAKEN = -3          # nobody has decided yet
NO_SPACE = 1 << 16  # less is free on the disk than --min-free-disk: DiskSpace.reason
DRAINING = 1 << 17  # the daemon drains
FULL = 1 << 18      # max_depth or max_bytes: Topic.bound_reason


@cython.final
cdef class Topic(TopicState):
    """One topic. Made by Broker.get_topic()."""

    def __init__(self, bytes name not None, bint ephemeral, DiskQueue disk, int64_t max_memory,
                 CommitSchedule schedule not None, Clock clock not None, GuidFactory guids not None,
                 TopicOwner owner not None):
        self.name = name
        self.ephemeral = ephemeral
        self.clock = clock
        self.commit = Commit.new(schedule, self)
        self.backlog = Backlog.new(disk, max_memory, False, clock, self.commit, self)
        self.slicer = schedule.slicer
        self.space = schedule.space
        self.guids = guids
        self.owner = owner
        self.leftover = Leftover.__new__(Leftover)
        self.channels = {}
        self.fan = []
        self.held = []
        self.gone = []
        self.bound_reason = ""
        self.crowd = []

    def __str__(self):
        return f"topic {self.name.decode()}"

    def __dealloc__(self):
        free(self.retired)
        free(self.limited)

    # ------------------------------------------------------------------ publishing

    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
        cdef char c_id[16]
        cdef Message *message
        cdef int result
        if self.exiting:
            return PUT_EXITING
        if unlikely(self.bounded) and not admits(self, 1, size):
            return PUT_FULL
        if self.logs:
            return append(self, c_body, size, defer_ms)
        self.guids.next(self.clock.wall, c_id)
        message = message_new(c_id, self.clock.wall, c_body, size)
        if message is NULL:
            return PUT_NO_MEMORY
        result = self.put(message, defer_ms)
        if is_refused(result):
            message_unref(message)
        return result

    cdef int publish_once(self, Once *once, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
        cdef int result = once_begins(self, once)
        if result != GO:
            return result
        result = self.publish_bytes(c_body, size, defer_ms)
        once_ended(self, once, result)
        return result

    cdef int publish_gathered(self, Message *message, uint32_t defer_ms) noexcept:
        cdef int result = PUT_EXITING
        if unlikely(self.bounded) and not admits(self, 1, message.size):
            message_unref(message)
            return PUT_FULL
        if self.logs and not self.exiting:
            result = append(self, message.body, message.size, defer_ms)
            message_unref(message)
            return result
        if not self.exiting:
            self.guids.next(self.clock.wall, message.id)
            message.timestamp_ns = self.clock.wall
            result = self.put(message, defer_ms)
        if is_refused(result):
            message_unref(message)
        return result

    cdef bint publish_slice(self, Batch *batch) noexcept:
        cdef int result
        cdef bint whole, bounded = self.bounded
        if batch.once.asked and batch.once.claim == 0:
            result = once_begins(self, &batch.once)
            if result == PUT_TAKEN:
                return False
            if result != GO:
                batch.result = result
                batch.left = 0
                return True
        if bounded and not batch.admitted and not admits_batch(self, batch.c_at, batch.gathered, batch.left):
            batch.result = PUT_FULL
            once_ended(self, &batch.once, PUT_FULL)
            return True
        # A batch that has begun is published as a whole, even if others fill the queue meanwhile.
        batch.admitted = True
        self.bounded = False
        whole = append_slice(self, batch) if self.logs else self._publish_some(batch)
        self.bounded = bounded
        if batch.once.claim:
            if not self.logs:
                once_wrote(&batch.once, batch.result)
            if whole:
                once_ended(self, &batch.once, batch.result)
        return whole

    cdef bint _publish_some(self, Batch *batch) noexcept:
        cdef int result
        cdef int64_t cost = 1 + self.fan_count, left = STEPS     # a large message to many channels: beyond 32 bits
        cdef int32_t size = 0
        cdef Entry entry
        if batch.staged is not NULL and batch.staged.records:
            batch.result = self._publish_staged(batch.staged, batch.defer_ms)
            if is_refused(batch.result):
                batch.left = 0
                return True
        while batch.left > 0:
            if batch.gathered is NULL:
                size = load_i32(batch.c_at)
                left -= cost * (size >> SIZE_SHIFT)
                result = self.publish_bytes(batch.c_at + SIZE_BYTES, <uint32_t> size, batch.defer_ms)
            else:
                fifo_pop(batch.gathered, &entry)
                left -= (cost - 1) * <int64_t> (entry.message.size >> SIZE_SHIFT)
                result = self.publish_gathered(entry.message, batch.defer_ms)
            if is_refused(result):
                batch.result = result
                batch.left = 0
                return True
            if result == PUT_DISK:
                batch.result = result
            if batch.gathered is NULL:
                batch.c_at += SIZE_BYTES + size
            batch.left -= 1
            left -= cost
            if left <= 0:
                if batch.left > 0 and (self.slicer.over() or self.commit.is_full()):
                    return False
                left = STEPS
        return True

    cdef int _publish_staged(self, Buffer *staged, uint32_t defer_ms) noexcept:
        """The topic has left its log since the batch began: what was staged for that goes where the rest goes."""
        cdef int64_t at = 0, size
        cdef int put, result = PUT_MEMORY
        while at < staged.length and not is_refused(result):
            size = load_i32(staged.c_data + at)
            put = self.publish_bytes(staged.c_data + at + SIZE_BYTES, <uint32_t> size, defer_ms)
            if put == PUT_DISK or is_refused(put):
                result = put
            at += SIZE_BYTES + size
        buffer_free(staged)
        return result

    cdef bint holds(self, Publisher publisher) noexcept:
        if not self.commit.is_full() and not self._holds():
            return False
        self.held.append(publisher)
        return True

    cdef bint _holds(self) noexcept:
        """Whether publishers have to wait for it to catch up."""
        return not self.logs and not self.direct and self.allowance <= 0 and self._flows()

    cdef int put(self, Message *message, uint32_t defer_ms) noexcept:
        cdef uint32_t size = message.size
        cdef int result
        if self.space.low and not self._fits(defer_ms):
            return PUT_NO_SPACE
        if self.direct:
            result = self._fan_out(message, 0, defer_ms)
        else:
            self.allowance -= 1
            result = self.backlog.put(message, 0, defer_ms, False, NULL)
            if unlikely(self.limits.watched):
                topic_waits(self)
        if result != PUT_NO_MEMORY:
            self.message_count += 1
            self.message_bytes += size
        return result

    cdef bint _fits(self, uint32_t defer_ms) noexcept:
        cdef Channel channel
        if not self.direct:
            return self.backlog.fits(defer_ms)
        for channel in self.fan:
            if not channel.fits(defer_ms):
                return False
        return True

    cdef int _fan_out(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        cdef Channel channel
        cdef int put, result = PUT_MEMORY
        for channel in self.fan:
            message_ref(message)
            put = channel.put_deferred(message, attempts, defer_ms) if defer_ms else channel.put(message, attempts)
            if put == PUT_NO_MEMORY:
                message_unref(message)
                result = put
            elif put == PUT_DISK and result != PUT_NO_MEMORY:
                result = put
        if result != PUT_NO_MEMORY:
            message_unref(message)
        return result

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
        """The id of the message that was published last, to a topic that is not in a log."""
        return self.guids.last()

    def last_index(self) -> int:
        """Of a log: the index of the message that was published last among those of its commit; see
        TopicLog.id_written()."""
        return self.log.unwritten_records() - 1

    @property
    def in_log(self) -> bool:
        """Whether it publishes to a log."""
        return self.logs

    def set_id(self, OpenBatch batch not None, bytes id not None):
        """Before the first slice of a batch: the batch has an id."""
        once_new(self, &batch.once, id, len(id))

    def drop_id(self, OpenBatch batch not None):
        """A slice has raised: the batch is not published."""
        once_dropped(self, &batch.once)

    def publish_lines(self, bytes lines not None, Py_ssize_t start=0, OpenBatch batch=None,
                      uint32_t defer_ms=0) -> tuple:
        """Publishes the non-empty lines from start on, until the slice is over.

        batch: of a log, or with an id, the same for all slices. Returns (as publish(), where to continue, how many
        bytes are left).
        """
        cdef int result
        cdef bint bounded
        cdef const char *c_at = <const char *> lines + start
        cdef const char *c_end = <const char *> lines + len(lines)
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        if self.logs and batch is None:
            raise TypeError("a topic in a log needs an OpenBatch")
        if batch is not None and batch.once.asked and batch.once.claim == 0:
            result = once_begins(self, &batch.once)
            if result == PUT_TAKEN:
                return 0, start, len(lines) - start
            if result != GO:
                return self._settle(result), len(lines), 0
        bounded = self.bounded
        if bounded and start == 0 and not admits_lines(self, c_at, c_end):
            if batch is not None:
                once_ended(self, &batch.once, PUT_FULL)
            return FULL, len(lines), 0
        self.bounded = False
        if self.logs:
            c_at = append_lines(self, c_at, c_end, batch, defer_ms, &result)
        else:
            c_at = self._publish_some_lines(c_at, c_end, batch, defer_ms, &result)
        self.bounded = bounded
        if batch is not None and batch.once.claim:
            if not self.logs:
                once_wrote(&batch.once, result)
            if c_at == c_end:
                once_ended(self, &batch.once, result)
        return self._settle(result), c_at - <const char *> lines, c_end - c_at

    cdef const char *_publish_some_lines(self, const char *c_at, const char *c_end, OpenBatch batch,
                                         uint32_t defer_ms, int *result) noexcept:
        """Where it ended: at c_end, too, if a line was refused."""
        cdef int put
        cdef int64_t cost = 1 + self.fan_count, left = STEPS
        cdef const char *c_feed
        result[0] = PUT_MEMORY
        if batch is not None and batch.staged.records:
            result[0] = self._publish_staged(&batch.staged, defer_ms)
            if is_refused(result[0]):
                return c_end
        while c_at < c_end:
            c_feed = <const char *> memchr(c_at, c'\n', c_end - c_at)
            if c_feed is NULL:
                c_feed = c_end
            if c_feed > c_at:
                put = self.publish_bytes(c_at, <uint32_t> (c_feed - c_at), defer_ms)
                if is_refused(put):
                    result[0] = put
                    return c_end
                if put == PUT_DISK:
                    result[0] = put
            c_at = min(c_feed + 1, c_end)
            left -= cost
            if left <= 0:
                if self.slicer.over() or self.commit.is_full():
                    break
                left = STEPS
        return c_at

    def publish_batch(self, bytes batch not None, Py_ssize_t start=0, int32_t left=-1, OpenBatch staged=None,
                      uint32_t defer_ms=0) -> tuple:
        """Publishes messages of a binary multi-publish that nsqc.wire.mpub has checked, until the slice is over.

        left: how many messages there are from start on; -1: all, and their count is at start. staged: of a log, or with
        an id, the same for all slices. Returns (as publish(), where to continue, how many are left).
        """
        cdef Batch part
        if self.logs and staged is None:
            raise TypeError("a topic in a log needs an OpenBatch")
        memset(&part, 0, sizeof(Batch))
        part.c_at = <const char *> batch + start
        part.left = left
        part.result = PUT_MEMORY
        part.defer_ms = defer_ms
        if staged is not None:
            part.staged = &staged.staged
            part.once = staged.once
        part.admitted = left >= 0
        if left < 0:
            part.left = load_i32(part.c_at)
            part.c_at += SIZE_BYTES
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        self.publish_slice(&part)
        if staged is not None:
            staged.once = part.once
        return self._settle(part.result), part.c_at - <const char *> batch, part.left

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

    def when_written(self, call):
        """Calls call(errno or 0) when everything published so far is written."""
        self.commit.wait(CallWaiter(call))

    def when_running_written(self, call):
        """The same for what the write under way has; only right after RUNNING."""
        self.commit.wait_running(CallWaiter(call))

    @property
    def full(self) -> bool:
        """Whether so much waits for a commit that large publishes should wait for it, too."""
        return self.commit.is_full()

    # ------------------------------------------------------------------ flow from the backlog to the channels

    cdef bint _flows(self) noexcept:
        return self.started and not self.paused and not self.exiting and self.stuck == 0 and self.fan_count > 0

    cdef void refresh(self) noexcept:
        cdef bint flows = self._flows(), behind = self.leftover.waits() or self.backlog.depth() > 0
        self.direct = flows and not behind
        if self.direct:
            self.waiting = False
        if self.direct or not flows:
            self._let_publish(INT64_MAX)
        elif not self.waiting and not self.retrying:
            self.slicer.add(self)

    cdef void _let_publish(self, int64_t allowance) noexcept:
        """Lets held publishers continue, with so many messages."""
        cdef Publisher publisher
        cdef list held = self.held
        self.allowance = allowance
        if held:
            self.held = []
            for publisher in held:
                publisher.publish_on()

    def resume(self):
        """Tries again what memory or the disk had prevented. Called by the loop."""
        self.retrying = False
        self.refresh()

    cdef bint run_slice(self) noexcept:
        if self.exiting:
            return self._delete_slice()
        if self.owner.closing:
            return False        # messages are as safe here as in the channels
        if self._flows():
            self.clock.refresh()
            self._drain()
        self.refresh()
        return False        # refresh() has asked for another slice if there is reason to

    cdef bint _drain(self) noexcept:
        """Passes on what waits until the slice is over; False: there is nothing more for now."""
        cdef Entry entry
        cdef int64_t passed = 0
        cdef int64_t cost = 1 + self.fan_count, left = STEPS
        cdef bint more = True
        if not self.leftover.pass_again():
            self._try_again()
            return False
        while self.stuck == 0 and self.fan_count > 0:
            if not self.backlog.pop(&entry):
                more = False
                self.waiting = self.backlog.depth() > 0 and not self.retrying
                break
            passed += 1
            left -= (cost - 1) * <int64_t> (entry.message.size >> SIZE_SHIFT)
            if not self.leftover.pass_on(&entry, self.backlog.place is not NULL, self.fan):
                self._try_again()
                more = False
                break
            left -= cost
            if left <= 0:
                if self.commit.is_full():
                    self.waiting = True     # on_commit_ended() follows
                    break
                if self.slicer.over():
                    break
                left = STEPS
        if self.commit.is_clean():
            self._copies_done()     # no channel has a disk
        if passed:
            self._let_publish(max(passed // 2, <int64_t> LEAST_ALLOWANCE))
        return more

    cdef void _try_again(self) noexcept:
        if not self.retrying:
            self.retrying = True
            self.owner.resume_later(self)

    cdef void on_readable(self) noexcept:
        self.waiting = False
        self.refresh()

    cdef void on_unreadable(self) noexcept:
        """Nothing is lost: it is read again later."""
        self.waiting = False
        self._try_again()

    cdef void on_commit_began(self) noexcept:
        if self.backlog.disk is not None and not self.leftover.waits():
            self.copied_serial = self.backlog.disk.unacked.serial
        if self.ids is not None:
            self.ids.commit_began()

    cdef void on_commit_ended(self, int error) noexcept:
        """The copies of what was read before are written, unless a channel has failed."""
        if self.ids is not None:
            self.ids.commit_ended(error)
        if self.stuck == 0 and error == 0 and self.backlog.disk is not None:
            self._check_copies()
            self.backlog.disk.done_before(self.copied_serial)
        if self.waiting:
            self.waiting = False
            self.refresh()
        if self.held and not self._holds():
            self._let_publish(self.allowance)

    cdef void _copies_done(self) noexcept:
        if self.stuck == 0 and self.backlog.disk is not None and not self.leftover.waits():
            self._check_copies()
            self.backlog.disk.done_before(self.backlog.disk.unacked.serial)

    cdef void _check_copies(self) noexcept:
        # RULE: a topic gives up places only when none of their copies is in a buffer. If nothing is being written and
        # nothing has failed, what is left in a channel's buffer came after the commit had begun.
        cdef Channel channel
        if not CHECKS:
            return
        for channel in self.fan:
            if channel.backlog.disk is not None and (channel.backlog.disk.writing is not NULL
                                                     or channel.backlog.disk.write_error):
                broken("a topic gives up places whose copies are not written")

    cdef void _drop_places(self) noexcept:
        """Before the backlog is emptied: its places have no other owner that could end them."""
        if self.backlog.disk is not None:
            self.backlog.disk.done_before(INT64_MAX)

    def start(self):
        """All channels that must exist from the beginning do: messages may flow."""
        self.started = True
        if self.earlier is not None:
            # Channels that nsqd.dat did not have yet when the daemon was killed.
            for name in self.earlier.channels:
                self.get_channel(name)
            self.earlier = None
        if self.log is not None and not self.paused:
            unhold_log(self)
        self._begin_slice()

    def _begin_slice(self):
        """Passes on at once what fits into a slice."""
        if self._flows() and not self.waiting and not self.retrying:
            self.clock.refresh()
            self.slicer.begin_within(self.clock.monotonic)
            self._drain()
        self.refresh()

    # ------------------------------------------------------------------ channels

    def channel(self, bytes name not None):
        """The channel of that name, or None."""
        return self.channels.get(name)

    def get_channel(self, bytes name not None, start=None):
        """The channel of that name, created if it does not exist. start: the offset in the log where a new one begins;
        None: with what the topic has kept for it, or what is published from now on."""
        cdef Channel channel = self.channels.get(name)
        if channel is None:
            channel = <Channel> self.owner.make_channel(self, name)
            if self.log is not None:
                give_cursor(self, channel, start)
            self.channels[name] = channel
            self._set_fan()
            self.owner.on_channel_created(self, channel)
            self._begin_slice()
        return channel

    def set_disks(self):
        """Its channels have other disk queues than before."""
        self._set_fan()

    def _set_fan(self):
        cdef Channel channel
        self.fan = list(self.channels.values())
        self.fan_count = len(self.fan)
        if self.backlog.disk is not None:
            disks = [channel.backlog.disk for channel in self.fan]
            self.backlog.disk.copies = [disk for disk in disks if disk is not None]
        set_bounded(self)

    cdef void rules_changed(self) noexcept:
        set_bounded(self)

    def set_limits(self, rule):
        """How much may wait, and how long: nsqc.broker.protocols.TopicRule."""
        set_limits(self, rule)

    def expire(self) -> bool:
        """Drops what has expired in the topic itself, some of it; whether there is more."""
        return topic_expire(self)

    def delete_channel(self, bytes name not None) -> bool:
        """Deletes a channel with all it holds; False if it does not exist."""
        cdef Channel channel = self.channels.pop(name, None)
        if channel is None:
            return False
        if channel.stuck:
            self.stuck -= 1
        if not self.exiting:
            self._set_fan()
            self.refresh()
            if self.log is not None and not self.channels and not self.log.held:
                self.place.move(self.log.visible)
        self.owner.on_channel_deleted(self, channel)
        delete_channel(channel)
        if not self.channels and self.ephemeral and not self.exiting:
            self.owner.on_last_channel_gone(self)
        return True

    cdef void on_dead(self, BacklogOwner channel) noexcept:
        self.owner.on_dead(channel)

    cdef void on_room(self) noexcept:
        room_made(self)

    cdef int on_clients_gone(self, BacklogOwner channel) except -1:
        self.delete_channel((<Channel> channel).name)
        return 0

    # ------------------------------------------------------------------ administration

    def pause(self):
        """Keeps messages in the topic."""
        self.paused = True
        if self.log is not None:
            hold_log(self)
        self.refresh()

    def unpause(self):
        """Lets messages flow to the channels again."""
        self.paused = False
        if self.log is not None:
            unhold_log(self)
        self._begin_slice()

    def empty(self):
        """Drops what waits in the topic itself."""
        self.leftover.drop()
        self._drop_places()
        self.backlog.empty()
        if self.log is not None:
            empty_log(self)
        self.waiting = False
        self.refresh()

    def delete(self):
        """Deletes the channels and everything that waits; many channels go in slices. See when_gone()."""
        self.exiting = True
        self.direct = False
        self._let_publish(INT64_MAX)
        self.fan = []
        self.fan_count = 0
        set_bounded(self)
        room_end(self)
        self.clock.refresh()
        self.slicer.begin(self.clock.monotonic)
        if self._delete_slice():
            self.slicer.add(self)

    cdef bint _delete_slice(self) noexcept:
        while self.channels:
            self.delete_channel(next(iter(self.channels)))
            if self.channels and self.slicer.over():
                return True
        if self.gone is not None:
            self.leftover.drop()
            self._drop_places()
            self.backlog.delete()
            if self.log is not None:
                self.log.delete()
            self.owner.on_topic_deleted(self)
            gone, self.gone = self.gone, None
            for call in gone:
                call()
            self.commit.let_go()
        return False

    def when_gone(self, call):
        """Calls call() when the deletion is complete."""
        if self.gone is None:
            call()
        else:
            self.gone.append(call)

    def close(self, bint written) -> tuple:
        """For a stop, after the channels: writes to disk what waits. written: the channels could write everything.

        Returns how many messages of memory were written, and the delays, in milliseconds by id, that the disk format
        has no room for. Raises OSError.
        """
        cdef int64_t waiting
        cdef Entry left
        self.exiting = True
        self.direct = False
        if self.log is not None:
            close_log(self)
        if self.backlog.disk is None:
            return (0, {})
        if self.leftover.waits():
            # The channels that have it get it once more; the others would not get it otherwise.
            left = self.leftover.entry
            message_ref(left.message)
            self.backlog.put(left.message, left.attempts, left.defer_ms, True, NULL)
            self.leftover.drop()
        waiting = self.backlog.spill()
        delays = dict(self.backlog.delays)
        if written:
            self.backlog.disk.done_before(INT64_MAX)
        self.backlog.close()
        return (waiting, delays)

    def restore_delays(self, dict delays not None):
        """Delays in milliseconds by id, of messages that an earlier run left on disk."""
        self.backlog.delays.update(delays)

    # ------------------------------------------------------------------ the log

    def set_log(self, TopicLog log not None, Earlier earlier, rule):
        """Gives the topic a log; see logged.pxd."""
        attach_log(self, log, earlier, rule)

    def set_rule(self, rule):
        """The topic has a log: how that is kept."""
        follow_rule(self, rule)

    def set_dedupe(self, int64_t window_ns, int64_t limit, opened=None):
        """How long the ids of publishes are remembered, and how many of them; 0: none are. opened: see publishonce.pxd.
        """
        follow_dedupe(self, window_ns, limit, opened)

    def forget_ids(self) -> bool:
        """Forgets ids whose time is over; whether there are more of them."""
        if self.ids is None:
            return False
        self.clock.refresh()
        return self.ids.expire(self.clock.monotonic, STEPS)

    def retain(self) -> bool:
        """Removes segments of the log that its rule does not keep; whether there may be more to do later."""
        return (self.log is not None and retain_log(self)) or (self.ids is not None and self.ids.count > 0)

    def drop_log(self) -> bool:
        """Deletes the log that the topic has switched from; False: it is in use."""
        return drop_log(self)

    @property
    def log_unfinished(self) -> int:
        """Messages of the log that a channel, or the topic itself, has not finished."""
        return ranks_between(self.log, needed_from(self), self.log.next)

    def refused(self, int failure):
        """Counts a publish that it has refused, with an errno, NO_SPACE, FULL or DRAINING."""
        if failure == DRAINING:
            self.owner.on_refused(refusals.DRAINING)
        elif failure == FULL:
            self.owner.on_refused(refusals.FULL)
            self.owner.on_bound(self)
        elif failure != NO_SPACE:
            self.owner.on_refused(refusals.of_error(failure))
        else:
            self.owner.on_refused(refusals.LOG_FULL if self.log_full else refusals.NO_SPACE)

    def refusal(self, int failure=NO_SPACE) -> str:
        """Why it accepts nothing now; failure: NO_SPACE or FULL."""
        if failure == FULL:
            return self.bound_reason
        return self.full_reason if self.log_full else self.owner.space_reason()

    cdef void on_appended(self, int64_t records) noexcept:
        log_grew(self, records)

    cdef void on_idle(self) noexcept:
        cdef Channel channel
        for channel in self.fan:
            if channel.cursor is not None:
                channel.cursor.release()

    cdef bint is_behind(self) noexcept:
        return self.leftover.waits() or self.backlog.depth() > 0

    # ------------------------------------------------------------------ failed writes

    cdef void on_write_failed(self, int error, int64_t records, int64_t body_bytes) noexcept:
        """The backlog could not be written and has taken the messages back, so they do not count."""
        self.message_count -= <uint64_t> records
        self.message_bytes -= <uint64_t> body_bytes
        self.taken_count += <uint64_t> records
        self.taken_bytes += <uint64_t> body_bytes
        self.waiting = False        # it may have waited for what was taken back
        self.refresh()
        self.owner.on_write_failed(self, None, error)

    cdef void on_write_healed(self) noexcept:
        """The backlog was written again."""
        self.owner.on_write_healed(self, None)

    cdef void on_channel_stuck(self, BacklogOwner channel, int error, bint first) noexcept:
        """The channel keeps its messages, and this topic holds back until it can write again."""
        if first:
            self.stuck += 1
            self.refresh()
        self.owner.on_write_failed(self, channel, error)

    cdef void on_channel_healed(self, BacklogOwner channel) noexcept:
        """It has written, or has nothing left to write."""
        self.stuck -= 1
        if self.commit.is_clean() and self._none_out():
            self._copies_done()     # otherwise a full disk with nothing but this topic's files would never empty
        self.refresh()
        self.owner.on_write_healed(self, channel)

    def _none_out(self) -> bool:
        """Whether no channel has anything in flight or deferred, which may be in no file but this topic's."""
        cdef Channel channel
        for channel in self.fan:
            if (channel.timeouts.count or channel.delayed.count or channel.front.count or channel.dead.count
                    or channel.sent.count or channel.again.heap.count):
                return False
        return True

    @property
    def probe_path(self) -> str:
        """The file that the backlog is written to."""
        if self.logs:
            return self.log.write_path
        return self.backlog.disk.write_path

    @property
    def disk(self):
        """The DiskQueue of the backlog; None: nothing goes to disk."""
        return self.backlog.disk

    # ------------------------------------------------------------------ metrics

    cdef int64_t count_waiting(self) noexcept:
        return self.backlog.depth() + self.leftover.waits() + (log_depth(self) if self.log is not None else 0)

    cdef int64_t count_on_disk(self) noexcept:
        cdef int64_t count = self.backlog.disk_depth()
        if self.log is not None:
            count += max(log_depth(self) - self.backlog.max_memory, <int64_t> 0)
        return count

    cdef TopicLevels levels(self) noexcept:
        return TopicLevels(self.count_waiting(), self.count_on_disk())

    @property
    def depth(self) -> int:
        """Messages that wait in the topic itself."""
        return self.count_waiting()

    @property
    def backend_depth(self) -> int:
        """Those of them on disk."""
        return self.count_on_disk()
