"""A topic: takes what is published and fans it out to its channels."""

cimport cython
from libc.errno cimport ENOMEM, ESHUTDOWN
from libc.stdint cimport int32_t, int64_t, uint32_t

from nsqc.store.backlog cimport PUT_DISK, PUT_MEMORY, PUT_NO_MEMORY
from nsqc.store.fifo cimport Entry
from nsqc.store.message cimport message_new, message_ref, message_unref
from nsqc.wire.hton cimport load_i32

cdef enum:
    DRAIN_BURST = 4096      # messages passed on before the loop gets its turn


@cython.final
cdef class Topic:
    """One topic. Made by Broker.get_topic()."""

    def __init__(self, bytes name not None, bint ephemeral, Backlog backlog not None, Clock clock not None,
                 CommitSet commits not None, GuidFactory guids not None, broker):
        self.name = name
        self.ephemeral = ephemeral
        self.backlog = backlog
        self.clock = clock
        self.commits = commits
        self.guids = guids
        self.broker = broker
        self.channels = {}
        self.fan = []
        backlog.owner = self

    # ------------------------------------------------------------------ publishing

    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
        cdef char made_id[16]
        cdef Message *message
        cdef int result
        self.guids.next(self.clock.wall, made_id)
        message = message_new(made_id, self.clock.wall, c_body, size)
        if message is NULL:
            return PUT_NO_MEMORY
        result = self.put(message, defer_ms)
        if result == PUT_NO_MEMORY:
            message_unref(message)
        return result

    cdef int put(self, Message *message, uint32_t defer_ms) noexcept:
        cdef uint32_t size = message.size
        cdef int result = self._fan_out(message, 0, defer_ms) if self.direct else self._wait(message, defer_ms)
        if result != PUT_NO_MEMORY:
            self.message_count += 1
            self.message_bytes += size
        return result

    cdef int _fan_out(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept:
        cdef Channel channel
        cdef int one, result = PUT_MEMORY
        for channel in self.fan:
            message_ref(message)
            if defer_ms:
                channel.put_deferred(message, attempts, defer_ms)
                continue
            one = channel.put(message, attempts)
            if one == PUT_NO_MEMORY:
                message_unref(message)
                result = one
            elif one == PUT_DISK and result != PUT_NO_MEMORY:
                result = one
        if result != PUT_NO_MEMORY:
            message_unref(message)
        return result

    cdef int _wait(self, Message *message, uint32_t defer_ms) noexcept:
        cdef uint32_t size = message.size
        cdef int result = self.backlog.put(message, 0, defer_ms, False)
        if result == PUT_DISK:
            if self.spill_serial != self.commits.serial:
                self.spill_serial = self.commits.serial
                self.spill_count = self.spill_bytes = 0
            self.spill_count += 1
            self.spill_bytes += size
        return result

    def publish(self, bytes body not None, uint32_t defer_ms=0) -> int:
        """Publishes one message; 0, or the errno for which it was not accepted."""
        if self.exiting:
            return ESHUTDOWN
        self.clock.refresh()
        return self._settle(self.publish_bytes(body, <uint32_t> len(body), defer_ms))

    def publish_many(self, list bodies not None) -> int:
        """Publishes several messages; 0 or errno."""
        cdef int one, result = PUT_MEMORY
        cdef bytes body
        if self.exiting:
            return ESHUTDOWN
        self.clock.refresh()
        for body in bodies:
            one = self.publish_bytes(body, <uint32_t> len(body), 0)
            if one == PUT_DISK or one == PUT_NO_MEMORY:
                result = one
        return self._settle(result)

    def publish_batch(self, bytes batch not None, Py_ssize_t start=0) -> int:
        """Publishes the messages of a binary multi-publish that begins at start and that nsqc.wire.mpub has checked.

        Returns 0 or errno.
        """
        cdef const char *c_at = <const char *> batch + start
        if self.exiting:
            return ESHUTDOWN
        self.clock.refresh()
        return self._settle(publish_frames(self, c_at + 4, load_i32(c_at)))

    cdef int _settle(self, int result) except -1:
        """Makes what a call from outside the turn has spilled count at once."""
        cdef int64_t serial = self.commits.serial
        if result == PUT_NO_MEMORY:
            return ENOMEM
        if result == PUT_DISK and self.commits.commit() and self.failed_serial == serial:
            return self.failed_errno
        return 0

    def failed_in(self, int64_t serial) -> int:
        """The errno if this topic or one of its channels could not write in that commit, else 0."""
        return self.failed_errno if self.failed_serial == serial else 0

    # ------------------------------------------------------------------ flow from the backlog to the channels

    cdef void refresh(self) noexcept:
        cdef bint flows = (self.started and not self.paused and not self.exiting
                           and self.stuck == 0 and len(self.fan) > 0)
        self.direct = flows and self.backlog.depth() == 0
        if flows and not self.direct and not self.draining:
            self.draining = True
            if self.unreadable:
                self.broker.again(self)
            else:
                self.broker.later(self)

    def resume(self):
        """Passes on what waits, a bounded number at a time. Called by the loop."""
        self.draining = self.unreadable = False
        if self.started and not self.paused and not self.exiting:
            self.clock.refresh()
            self._drain()
            self.refresh()

    cdef int _drain(self) except -1:
        cdef Entry entry
        cdef int burst = DRAIN_BURST
        while burst > 0 and self.stuck == 0 and self.fan and self.backlog.pop(&entry):
            burst -= 1
            if self._fan_out(entry.message, entry.attempts, entry.defer_ms) == PUT_NO_MEMORY:
                message_unref(entry.message)
        return 0

    def start(self):
        """All channels that must exist from the beginning do: messages may pass."""
        self.started = True
        self.refresh()
        if not self.direct and self.draining:
            self.resume()

    # ------------------------------------------------------------------ channels

    def channel(self, bytes name not None):
        """The channel of that name, or None."""
        return self.channels.get(name)

    def get_channel(self, bytes name not None):
        """The channel of that name, made where it is missing."""
        cdef Channel channel = self.channels.get(name)
        if channel is None:
            channel = self.broker.make_channel(self, name)
            self.channels[name] = channel
            self.fan = list(self.channels.values())
            self.broker.on_channel_created(self, channel)
            self.refresh()
            if self.draining:
                self.resume()
        return channel

    def delete_channel(self, bytes name not None) -> bool:
        """Deletes a channel with what it holds; False where there is none."""
        cdef Channel channel = self.channels.pop(name, None)
        if channel is None:
            return False
        if channel.stuck:
            self.stuck -= 1
        self.fan = list(self.channels.values())
        self.refresh()
        self.broker.on_channel_deleted(self, channel)
        channel.delete()
        if not self.channels and self.ephemeral and not self.exiting:
            self.broker.delete_topic(self.name)
        return True

    def on_clients_gone(self, Channel channel not None):
        """The last client has left: an ephemeral channel goes, too."""
        if channel.ephemeral and self.channels.get(channel.name) is channel:
            self.delete_channel(channel.name)

    # ------------------------------------------------------------------ administration

    def pause(self):
        """Messages stay in the topic from now on."""
        self.paused = True
        self.refresh()

    def unpause(self):
        """Messages flow to the channels again."""
        self.paused = False
        self.refresh()

    def empty(self):
        """Drops what waits in the topic itself."""
        self.backlog.empty()
        self.refresh()

    def delete(self):
        """Deletes the channels and everything that waits."""
        cdef Channel channel
        self.exiting = True
        self.direct = False
        for channel in list(self.channels.values()):
            self.delete_channel(channel.name)
        self.backlog.delete()

    def close(self) -> tuple:
        """For a stop, after the channels: writes what waits to disk.

        Returns how many messages of memory were written, and the delays, in milliseconds by id, that the disk format
        has no room for. Raises OSError.
        """
        cdef int64_t waiting
        self.exiting = True
        self.direct = False
        if self.backlog.disk is None:
            return (0, {})
        waiting = self.backlog.spill()
        if self.backlog.commit():
            raise OSError(self.failed_errno, "cannot write the topic out")
        self.backlog.disk.close()
        return (waiting, dict(self.backlog.delays))

    def restore_delays(self, dict delays not None):
        """Delays in milliseconds by id, of messages that an earlier run left on disk."""
        self.backlog.delays.update(delays)

    # ------------------------------------------------------------------ disk trouble

    def on_write_failed(self, int error):
        """The backlog could not be written and has taken the messages back, so they never were."""
        self.failed_serial = self.commits.serial
        self.failed_errno = error
        if self.spill_serial == self.commits.serial:
            self.message_count -= self.spill_count
            self.message_bytes -= self.spill_bytes
        self.refresh()
        self.broker.on_write_failed(self, None, error)

    def on_read_failed(self):
        """The backlog cannot be read right now; nothing of it is lost."""
        self.unreadable = True

    def on_write_healed(self):
        """The backlog was written again."""
        self.broker.on_write_healed(self, None)

    def on_channel_stuck(self, Channel channel not None, int error):
        """A channel could not write: it keeps its messages, and this topic holds back until it can."""
        self.failed_serial = self.commits.serial
        self.failed_errno = error
        self.stuck = sum(1 for one in self.fan if one.stuck)
        self.refresh()
        self.broker.on_write_failed(self, channel, error)

    def on_channel_healed(self, Channel channel not None):
        """A channel that was stuck has written."""
        self.stuck = sum(1 for one in self.fan if one.stuck)
        self.refresh()
        self.broker.on_write_healed(self, channel)

    @property
    def probe_path(self) -> str:
        """The file that the backlog is written to."""
        return self.backlog.disk.write_path

    # ------------------------------------------------------------------ figures

    @property
    def depth(self) -> int:
        """Messages that wait in the topic itself."""
        return self.backlog.depth()

    @property
    def backend_depth(self) -> int:
        """Those of them on disk."""
        return self.backlog.disk_depth()


cdef int publish_frames(Topic topic, const char *c_at, int32_t count) noexcept:
    """Publishes count messages, each behind its size, as they stand in a checked multi-publish; PutResult."""
    cdef int one, result = PUT_MEMORY
    cdef int32_t size
    while count > 0:
        size = load_i32(c_at)
        one = topic.publish_bytes(c_at + 4, <uint32_t> size, 0)
        if one == PUT_DISK or one == PUT_NO_MEMORY:
            result = one
        c_at += 4 + size
        count -= 1
    return result
