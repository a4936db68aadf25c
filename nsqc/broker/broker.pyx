"""All topics by name, redriving, cancelling. See the .pxd."""

# types: from nsqc.log import Log
# types: from nsqc.options.declared import Settings
# types: from nsqc.store.log.manager import Logs
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.errno cimport ENOMEM, ENOSPC, ESHUTDOWN
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from nsqc.broker import refusals
from nsqc.broker.channel cimport Channel, Consumer
from nsqc.broker.leaving cimport (EXPIRED, FAILED, GIVEN_UP, OVERFLOWED, channel_admits, close_channel, dead_publish,
                                  dead_recall, dead_topic, origin_node, set_bounded, set_limits, topic_expire)
from nsqc.broker.figures cimport LatencyWindow, TopicCounts, add_figures, retire
from nsqc.broker.storage cimport attach_log
from nsqc.broker.topic cimport DRAINING, NO_SPACE, Topic, follow_dedupe
from nsqc.loop.uv cimport Unread
from nsqc.store.backlog cimport PUT_DISK, PUT_DROPPED, PUT_FULL, PUT_MEMORY, PUT_NO_MEMORY, is_refused
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.positions cimport deferred_take, offsets_have
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.message cimport (Delivery, Entry, Heap, Message, delivery_free, delivery_new, delivery_reserve,
                                 heap_first, heap_push, heap_remove, heap_reserve, message_new, message_ref,
                                 message_unref)
from nsqc.store.work cimport STEPS, CommitSchedule, DiskSpace, Slicer, Trash
from nsqc.wire.const cimport MESSAGE_ID_BYTES
from nsqc.wire.parser cimport name_is_ephemeral


# ====================================================================== broker
# All topics of one daemon: created, found, deleted, closed. Knows no clients, and files only through its disks.
#
# Listeners are notified of new and deleted topics and channels. Metadata and the registrations with nsqlookupd use
# that; the broker knows neither.

TOPIC_CREATED = "topic created"
TOPIC_DELETED = "topic deleted"
CHANNEL_CREATED = "channel created"
CHANNEL_DELETED = "channel deleted"


cdef inline uint32_t hash_name(const char *c_name, Py_ssize_t length) noexcept nogil:
    """FNV-1a; names are short."""
    cdef uint32_t value = 2166136261
    cdef Py_ssize_t at
    for at in range(length):
        value = (value ^ <unsigned char> c_name[at]) * 16777619
    return value


@cython.final
cdef class Broker:
    """The topics of a daemon.

    timers call channels at their deadlines; disks open disk queues; write_health is notified of failed and healed
    writes; guids creates message ids; loop: runs long work in slices and begins writes; rules say how topics are
    stored, channel_rules how channels deliver; space says whether the data path has room.
    """

    def __cinit__(self):
        self.topics = {}
        self._index()

    def __init__(self, settings: Settings, log: Log, timers: Timers, disks: DiskQueues, write_health: WriteHealth,
                 GuidFactory guids not None, loop: AbstractEventLoop | None = None, rules: TopicRules | None = None,
                 DiskSpace space=None, logs: Logs | None = None, channel_rules: ChannelRules | None = None):
        self.settings = settings
        self.node = origin_node(settings.now.broadcast_address, settings.now.node_id)
        self.is_topology_aware = settings.now.is_topology_aware
        self.log = log
        self.timers = timers
        self.disks = disks
        self.write_health = write_health
        self.guids = guids
        self.clock = Clock()
        self.slicer = Slicer(loop, None if loop is None else Unread())
        self.rules = rules
        self.channel_rules = channel_rules
        self.space = DiskSpace() if space is None else space
        self.commits = CommitSchedule(loop, self.slicer, self.space)
        self.logs = logs
        self.ephemeral = {}
        self.watched = {}
        self.circling = set()
        self.listeners = []
        self.refusals = dict.fromkeys(refusals.REASONS, 0)
        self.creations_refused = dict.fromkeys(refusals.LIMITS, 0)

    def __dealloc__(self):
        free(self.slots)
        free(self.ephemeral_retired)

    # ------------------------------------------------------------------ topics by name

    cdef Topic find(self, const char *c_name, Py_ssize_t length):
        cdef uint32_t value = hash_name(c_name, length)
        cdef uint32_t at = value & self.mask
        cdef Topic topic
        while self.slots[at].topic is not NULL:
            if self.slots[at].hash == value:
                topic = <Topic> self.slots[at].topic
                if (PyBytes_GET_SIZE(topic.name) == length
                        and memcmp(PyBytes_AS_STRING(topic.name), c_name, <size_t> length) == 0):
                    return topic
            at = (at + 1) & self.mask
        return None

    cdef int add(self, Topic topic) except -1:
        self.topics[topic.name] = topic
        if 2 * <uint32_t> len(self.topics) <= self.mask:
            self._enter(topic)
            return 0
        return self._index()

    cdef int _index(self) except -1:
        """Rebuilds the table, with room for twice as many names."""
        cdef uint32_t slots = 64
        cdef NameSlot *c_slots
        while slots < 4 * <uint32_t> len(self.topics):
            slots *= 2
        c_slots = <NameSlot *> calloc(slots, sizeof(NameSlot))
        if c_slots is NULL:
            raise MemoryError
        free(self.slots)
        self.slots = c_slots
        self.mask = slots - 1
        for topic in self.topics.values():
            self._enter(<Topic> topic)
        return 0

    cdef void _enter(self, Topic topic) noexcept:
        cdef uint32_t value = hash_name(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name))
        cdef uint32_t at = value & self.mask
        while self.slots[at].topic is not NULL:
            at = (at + 1) & self.mask
        self.slots[at].hash = value
        self.slots[at].topic = <PyObject *> topic

    cdef int remove(self, Topic topic) except -1:
        """Moves up later names in the table that could no longer be found."""
        del self.topics[topic.name]
        self._leave(topic)
        return 0

    cdef void _leave(self, Topic topic) noexcept:
        cdef uint32_t hole = hash_name(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name)) & self.mask
        cdef uint32_t at
        while self.slots[hole].topic != <PyObject *> topic:
            hole = (hole + 1) & self.mask
        at = hole
        while True:
            at = (at + 1) & self.mask
            if self.slots[at].topic is NULL:
                break
            # It may fill the hole if that lies between its preferred slot and its current one.
            if ((at - self.slots[at].hash) & self.mask) >= ((at - hole) & self.mask):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole].topic = NULL

    def topic(self, bytes name not None) -> Topic | None:
        """The topic of that name, or None."""
        return self.topics.get(name)

    # ------------------------------------------------------------------ topics

    def get_topic(self, bytes name not None, bint loading=False) -> Topic:
        """The topic of that name, created for a client if it does not exist. Raises LimitReached.

        While loading, no limit applies, and a new topic is not started: create its channels first, then call start().
        """
        cdef Topic topic = self.topics.get(name)
        cdef bint ephemeral, logs
        if topic is not None:
            return topic
        if not loading:
            self._need_room(refusals.MAX_TOPICS, self.settings.now.max_topics, len(self.topics), name)
        ephemeral = name_is_ephemeral(name, len(name))
        rule = self.rules.of(name) if self.rules is not None and not ephemeral else None
        logs = self.logs is not None and rule is not None and rule.storage == "log"
        topic = Topic(name, ephemeral, self._open(name.decode(), ephemeral, not logs), self.settings.now.mem_queue_size,
                      self.commits, self.clock, self.guids, self)
        if logs or (self.logs is not None and self.logs.has(name.decode())):
            self._give_log(topic, rule)
        elif rule is not None:
            follow_dedupe(topic, rule.dedupe, rule.dedupe_ids, None)
        if rule is not None:
            set_limits(topic, rule)
        self.add(topic)
        if ephemeral:
            self.ephemeral[name] = topic
        self._say(loading, "TOPIC(%s): created", topic.name.decode())
        self._notify(TOPIC_CREATED, topic, None)
        if not loading:
            if self.starter is None:
                topic.start()
            else:
                self.starter(topic)
        return topic

    def get_channel(self, Topic topic not None, bytes name not None, start: int | None = None) -> Channel:
        """As Topic.get_channel(), for a client: raises LimitReached if the topic has its maximum of channels."""
        cdef Channel channel = topic.channels.get(name)
        if channel is None:
            self._need_room(refusals.MAX_CHANNELS, self.settings.now.max_channels_per_topic, len(topic.channels),
                            topic.name)
            channel = topic.get_channel(name, start)
        return channel

    def _say(self, bint is_one_of_all, *line):
        """A start and a stop have such lines for all topics and channels: they are only for debugging."""
        (self.log.debug if is_one_of_all else self.log.info)(*line)

    cdef int _need_room(self, option, int64_t limit, Py_ssize_t count, bytes topic) except -1:
        """Raises LimitReached if the limit allows no more. topic: a name, for the log."""
        if not 0 < limit <= count:
            return 0
        self.creations_refused[option] += 1
        error = refusals.LimitReached(option, limit)
        self.log.warn("TOPIC(%s): a client is refused - %s", topic.decode(), error, kind=option)
        raise error

    def delete_topic(self, bytes name not None) -> bool:
        """Deletes a topic with its channels and all messages; False if it does not exist."""
        cdef Topic topic = self.topics.get(name)
        if topic is None:
            return False
        self.remove(topic)
        if topic.ephemeral:
            del self.ephemeral[name]
            self._retire_topic(topic)
        self.log.info("TOPIC(%s): deleting", name.decode())
        # Now: a new topic of that name during the deletion begins with the default rules, in its own folder.
        if self.rules is not None:
            self.rules.forget(name)
        if self.channel_rules is not None:
            self.channel_rules.forget_topic(name)
        if topic.log is not None:
            self.logs.leave(topic.log)
        elif self.logs is not None and not topic.ephemeral:
            self.logs.forget(name.decode())
        topic.delete()
        return True

    def _retire_topic(self, Topic topic):
        """Before an ephemeral topic is deleted: its numbers stay in the series of all ephemeral topics."""
        cdef Channel channel
        cdef TopicCounts counts = topic.metered()
        add_figures(&self.ephemeral_counts, &counts, sizeof(TopicCounts))
        for channel in topic.fan:
            retire(&self.ephemeral_retired, &channel.counts, channel.times)

    cdef int on_topic_deleted(self, Topic topic) except -1:
        cdef TopicLog log = topic.log
        if log is not None:
            self.logs.remove(log)
        # If a new topic of that name exists by now, nothing has changed for listeners.
        if topic.name not in self.topics:
            self._notify(TOPIC_DELETED, topic, None)
        return 0

    cdef int on_last_channel_gone(self, Topic topic) except -1:
        self.delete_topic(topic.name)
        return 0

    # ------------------------------------------------------------------ for topics

    cdef Channel make_channel(self, Topic topic, bytes name):
        """Creates a channel for a topic that is about to add it."""
        cdef bint ephemeral = name_is_ephemeral(name, len(name))
        cdef object options = self.settings.now
        cdef object text = name.decode()
        # Channels of a log-backed topic need files only while its queues have messages.
        cdef bint needed = not topic.logs or topic.backlog.depth() > 0
        cdef list quantiles = list(options.e2e_processing_latency_percentile)
        latency = LatencyWindow(quantiles, options.e2e_processing_latency_window_time) if quantiles else None
        self._say(not topic.started and self.starter is None, "TOPIC(%s): new channel(%s)", topic.name.decode(), text)
        cdef Channel channel = Channel(name, ephemeral, self._open(topic.name.decode() + ":" + text, ephemeral, needed),
                                       options.mem_queue_size, topic.commit, self.clock, topic, self.timers, latency,
                                       options.max_msg_timeout, options.max_channel_consumers)
        if self.channel_rules is not None:
            self._set_rule(topic, channel)
        channel.set_draining(self.draining)
        return channel

    cdef DiskQueue _open(self, name, bint ephemeral, bint needed):
        """The disk queue of a topic or channel; None if it is ephemeral, or not needed and without files."""
        return self.disks.open(name) if not ephemeral and (needed or self.disks.has(name)) else None

    # ------------------------------------------------------------------ logs

    def _give_log(self, Topic topic, rule):
        log, opened = self.logs.open(topic.name.decode(), self.clock, self.commits, self.guids)
        attach_log(topic, log, None if opened is None else opened.earlier, rule)
        follow_dedupe(topic, rule.dedupe, rule.dedupe_ids, opened)
        self._settle_segments(topic)
        self._warn_of_log(topic)
        self.watched[topic.name] = topic

    def _settle_segments(self, Topic topic):
        topic.log.max_file = self.logs.segment_bytes(topic.rule.retain_bytes, topic.rule.retain_local_bytes)

    def _warn_of_log(self, Topic topic):
        """Warns if the topic has a log although its rule says memory: the operator may have lost the rule."""
        count = 0 if topic.logs else topic.log.rank(topic.log.next) - topic.log.rank(topic.log.first)
        if count == 0:
            return
        if topic.rule.keeps_log:
            outcome = "the log stays readable until DELETE /topic/log"
        else:
            outcome = "the log is removed once its channels have finished them"
        self.log.warn("TOPIC(%s): it has a log with %d messages, and its rule (%s) says memory: %s",
                      topic.name.decode(), count, topic.rule.source, outcome)

    def rule_changed(self, name: bytes | None) -> Iterator[None]:
        """Applies the changed rule of a topic; None: all topics may be affected. Returns the remaining work, a
        generator that yields after each topic."""
        for topic in [self.topics.get(name)] if name is not None else list(self.topics.values()):
            if topic is not None and not topic.exiting and not topic.ephemeral:
                self._apply_rule(topic)
            yield

    def _apply_rule(self, Topic topic):
        cdef Channel channel
        rule = self.rules.of(topic.name)
        set_limits(topic, rule)
        if topic.log is None:
            if rule.storage == "log":
                self._give_log(topic, rule)
            else:
                follow_dedupe(topic, rule.dedupe, rule.dedupe_ids, None)
            return
        if topic.rule == rule:
            return
        follow_dedupe(topic, rule.dedupe, rule.dedupe_ids, None)
        if topic.logs and rule.storage != "log":
            # New publishes go to the queues: that needs their files.
            if topic.backlog.disk is None:
                topic.backlog.attach(self.disks.open(topic.name.decode()))
            for channel in topic.fan:
                if channel.backlog.disk is None and not channel.ephemeral:
                    channel.backlog.attach(self.disks.open(f"{topic.name.decode()}:{channel.name.decode()}"))
            topic.set_fan()
        switches = topic.logs and rule.storage != "log"
        topic.set_rule(rule)
        self._settle_segments(topic)
        if switches:
            self._warn_of_log(topic)
        # Now, not at the next check: the client that changed the rule expects its effect.
        if topic.retain():
            self.watched[topic.name] = topic

    def _set_rule(self, Topic topic, Channel channel):
        """Call set_bounded() afterwards."""
        rule = self.channel_rules.of(topic.name + b"/" + channel.name)
        target = rule.dead_topic(topic.name)
        if target and rule.moves and self.leads_to(target, topic.name):
            self.circling.add(channel)
            self.log.warn("DEAD LETTERS: %s keeps its messages: its dead-letter topic %s sends dead letters back to "
                          "topic %s, so they would circle - name another dead_letter in one of these rules", channel,
                          target.decode(), topic.name.decode(), kind=("dead letters circle", str(channel)))
            target = b""
        else:
            self.circling.discard(channel)
        channel.set_rule(rule, target)

    cdef bint leads_to(self, bytes name, bytes goal) except -1:
        cdef Topic topic
        cdef Channel channel
        cdef list reached = [name]
        cdef set seen = {name}
        while reached:
            topic = self.topics.get(reached.pop())
            for channel in () if topic is None else topic.channels.values():
                if channel.rules is NULL or not channel.rules.dies or channel.dead_letter in seen:
                    continue
                if channel.dead_letter == goal:
                    return True
                seen.add(channel.dead_letter)
                reached.append(channel.dead_letter)
        return False

    def _uncircle(self):
        """After a change of a rule, or the end of a channel: some channels may no longer be in a cycle."""
        cdef Channel channel
        for channel in list(self.circling):
            if channel.exiting:
                self.circling.discard(channel)
            else:
                self._set_rule(channel.owner, channel)
                set_bounded(channel.owner)

    cdef void on_dead(self, Channel origin, int error) noexcept:
        cdef Topic target
        cdef int reasons = 0, result
        if self.closing:
            return
        name = origin.dead_letter
        try:
            if not dead_recall(origin):
                error = ENOMEM
            name = dead_topic(origin)
            reason = refusals.text_of(error)
            if not error:
                target = self.get_topic(name)
                result = dead_publish(target, origin, self.node, &reasons)
                if result == PUT_DISK:
                    target.commit.block(origin)
                    return
                if not is_refused(result):
                    self._moves(origin, target, reasons)
                    return
                reason = target.why(result)
        except Exception as failure:
            reason = failure
        self.log.error("DEAD LETTERS: messages of %s cannot be moved to topic %s and wait - %s", origin,
                       name.decode(), reason, kind=("dead letters wait", str(origin)))
        origin.dead_waits = True
        origin.owner.on_moved()
        origin._try_again()

    cdef int _moves(self, Channel channel, Topic target, int reasons) except -1:
        """Logs, once for a while, that messages of a channel are moved. reasons: see dead_publish()."""
        for reason, text in ((FAILED, "have failed too often"), (EXPIRED, "have expired"),
                             (OVERFLOWED, "exceed its max_depth or max_bytes"),
                             (GIVEN_UP, "are given up by its consumers")):
            if reasons & (1 << <int> reason):
                self.log.warn("DEAD LETTERS: messages of %s %s and go to topic %s", channel, text,
                              target.name.decode(), kind=("dead letters", reason, str(channel)))
        return 0

    def channel_rule_changed(self, name: bytes | None) -> Iterator[None]:
        """Applies the changed rule of a channel, TOPIC/CHANNEL; TOPIC/: any channel of the topic may be affected; None:
        any channel. A generator that yields after each channel."""
        cdef Topic topic
        cdef Channel channel
        of, _, wanted = (b"", b"", b"") if name is None else name.partition(b"/")
        for topic in [self.topics.get(of)] if name is not None else list(self.topics.values()):
            if topic is None:
                continue
            for channel in [topic.channels.get(wanted)] if wanted else list(topic.channels.values()):
                if channel is not None and not channel.exiting:
                    self._set_rule(topic, channel)
                yield
            set_bounded(topic)
        self._uncircle()

    def retain(self) -> Iterator[None]:
        """Removes old segments and messages, by the rules; a generator that yields after each step."""
        cdef Topic topic
        cdef Channel channel
        self.clock.refresh()
        if self.clock.steps != self.steps:
            self.steps = self.clock.steps
            for topic in list(self.topics.values()):
                for channel in topic.fan:
                    channel.clock_was_set()
                yield
        if self.clock.ahead and not self.warned:
            self.warned = True
            self.log.warn("CLOCK: there are messages from up to %d s in the future: this node's clock was ahead. For "
                          "message_ttl they count as published now, and for retain_time as soon as the next ones",
                          self.clock.ahead // 1000000000)
        for name, topic in list(self.watched.items()):
            while topic.forget_ids():
                yield
            keeps = not topic.exiting and topic.retain()
            yield
            while topic_expire(topic):
                yield
            if not keeps and not topic.aging:
                self.watched.pop(name, None)
            for channel in list(topic.channels.values()):
                while channel.forget_removed():
                    yield

    cdef void on_aging(self, Topic topic) noexcept:
        self.watched[topic.name] = topic

    cdef void on_bound(self, Topic topic) noexcept:
        self.log.warn("TOPIC(%s): publishes are refused: %s", topic.name.decode(), topic.bound_reason,
                      kind=("bound", topic.name))

    cdef int on_log_full(self, Topic topic, bint full) except -1:
        if full:
            self.log.error("TOPIC(%s): publishes are refused: %s", topic.name.decode(), topic.full_reason)
        else:
            self.log.info("TOPIC(%s): publishes are accepted again", topic.name.decode())
        return 0

    cdef int on_log_left(self, Topic topic, TopicLog log) except -1:
        self.log.info("TOPIC(%s): everything in its log is finished; the log is removed", topic.name.decode())
        self.logs.abandon(log)
        return 0

    cdef int on_refused(self, reason) except -1:
        self.refusals[reason] += 1
        return 0

    def refused(self, reason: str):
        """Counts a refused publish; reason: one of nsqc.broker.refusals."""
        self.refusals[reason] += 1

    cdef int on_channel_created(self, Topic topic, Channel channel) except -1:
        return self._notify(CHANNEL_CREATED, topic, channel)

    cdef int on_channel_deleted(self, Topic topic, Channel channel) except -1:
        if topic.ephemeral:
            if not topic.exiting:
                retire(&self.ephemeral_retired, &channel.counts, channel.times)
        elif channel.ephemeral or self.folds_channels:
            retire(&topic.retired, &channel.counts, channel.times)
        self.log.info("TOPIC(%s): deleting channel %s", topic.name.decode(), channel.name.decode())
        self.write_health.forget(channel)
        if self.circling:
            # Later: the channel is still among those of its topic.
            self.slicer.call(self._uncircled)
        if self.channel_rules is not None and not topic.exiting:
            self.channel_rules.forget(topic.name + b"/" + channel.name)
        if not topic.exiting or topic.name not in self.topics:
            self._notify(CHANNEL_DELETED, topic, channel)
        return 0

    def _uncircled(self):
        self._uncircle()
        return False

    cdef void on_written(self, Topic topic, Channel channel, int error) noexcept:
        if error:
            self.failing = True
            self.write_health.failed(topic, channel, error)
        else:
            self.failing = self.write_health.healed(topic, channel)

    cdef void resume_later(self, Topic topic) noexcept:
        self.timers.resume_later(topic)

    cdef int _notify(self, event, topic, channel) except -1:
        if not self.closing:
            for listener in self.listeners:
                listener(event, topic, channel)
        return 0

    # ------------------------------------------------------------------ the whole daemon

    def emptied(self, queue: Topic | Channel) -> Awaitable[None]:
        """Awaits that a topic or channel that was just emptied is also empty on disk."""
        return self.disks.synced(queue.disk)

    async def recorded(self, Topic topic not None):
        """Waits until all progress of the topic's channels so far is in its journal, if any. Raises OSError if it
        cannot be written; that is retried."""
        if topic.log is not None:
            await self.logs.recorded(topic.log)

    def removed(self) -> Awaitable[None]:
        """Awaits that the files of all deletions so far are gone. OSError: those of a log cannot be removed; that is
        retried."""
        return self._removed()

    async def _removed(self):
        await self.disks.removed()
        if self.logs is not None:
            await self.logs.removed()

    def save_metadata(self, Topic topic not None) -> Future[None]:
        """A future that is done once the current channels and pauses of a topic are on disk."""
        return self.saver(topic)

    def halt(self, busy: list[Consumer]) -> Iterator[None]:
        """Stops all channels if draining is set, else resumes them; yields after each topic.

        Adds the consumers with messages in flight to busy.
        """
        cdef Topic topic
        cdef Channel channel
        cdef Consumer consumer
        for topic in list(self.topics.values()):
            for channel in topic.fan:
                channel.set_draining(self.draining)
                for consumer in channel.clients.values():
                    if consumer.in_flight > 0:
                        busy.append(consumer)
            yield

    def health(self) -> str:
        """OK, or NOK and the reason."""
        return self.write_health.health()

    def close(self) -> tuple[Delays, int]:
        """For a stop: writes everything to disk and closes the queues.

        Returns (delays, lost): the delays of deferred messages, which the disk format cannot store, as
        nsqc.broker.nsqc_dat.Delays; and how many queues could not be written.
        """
        cdef Topic topic
        cdef Channel channel
        cdef dict delays = {"topics": {}, "channels": {}}
        cdef int lost = 0, before
        self.closing = True
        for topic in self.topics.values():
            topic_name = topic.name.decode()
            self._say(True, "TOPIC(%s): closing", topic_name)
            before = lost
            for channel in topic.channels.values():
                channel_name = channel.name.decode()
                self._say(True, "CHANNEL(%s): closing", channel_name)
                try:
                    waiting, in_flight, deferred, times = close_channel(channel)
                except OSError as error:
                    self.log.error("CHANNEL(%s): failed to write messages of topic %s to disk - %s", channel_name,
                                   topic_name, error.strerror)
                    lost += 1
                    continue
                if waiting or in_flight or deferred:
                    self.log.info("CHANNEL(%s): flushed %d memory %d in-flight %d deferred messages to backend",
                                  channel_name, waiting, in_flight, deferred)
                if times:
                    delays["channels"][topic_name + ":" + channel_name] = times
            try:
                waiting, times = topic.close(lost == before)
            except OSError as error:
                self.log.error("TOPIC(%s): failed to write messages to disk - %s", topic_name, error.strerror)
                lost += 1
                continue
            if waiting:
                self.log.info("TOPIC(%s): flushed %d memory messages to backend", topic_name, waiting)
            if times:
                delays["topics"][topic_name] = times
        return delays, lost


# ====================================================================== redrive

cdef object prepare(Broker broker, Topic topic, Channel channel):
    """Why the channel accepts nothing, as put_again(); None: it accepts messages, within its limits."""
    if broker.draining or broker.closing:
        return DRAINING
    if topic.exiting or channel.exiting:
        return ESHUTDOWN
    if broker.space.low or broker.guids.is_short():
        return NO_SPACE
    if channel.backlog.disk is None and not channel.ephemeral:
        # A channel of a log has no files until a message is for it alone.
        channel.backlog.attach(broker.disks.open(f"{topic.name.decode()}:{channel.name.decode()}"))
        topic.set_fan()
    broker.clock.refresh()
    return None


cdef int put_back(Topic topic, Channel channel, const char *c_body, uint32_t size) noexcept:
    """PutResult. If the channel has files, writes there: the message comes from a place that survives a kill, and
    memory does not."""
    cdef char c_id[16]
    cdef Message *message
    cdef int result
    if not channel_admits(topic, channel, 1, size):
        return PUT_FULL
    topic.guids.next(topic.clock.wall, c_id)
    message = message_new(c_id, topic.clock.wall, c_body, size)
    if message is NULL:
        return PUT_NO_MEMORY
    result = channel.put_copy(message, 0, 0)
    channel.slicer.add(channel)     # a limit may be exceeded
    if result == PUT_NO_MEMORY:
        message_unref(message)
    elif result != PUT_DROPPED:
        channel.counts.redriven_count += 1
    return result


cdef object outcome(Topic topic, int result):
    return ENOSPC if result == PUT_DROPPED else topic._settle(result)      # an ephemeral channel is full


def put_again(Broker broker not None, Topic topic not None, Channel channel not None, bytes body not None) -> int:
    """Adds a message to one channel only, as a new one: with its own id and time, and no attempts.

    Returns as Topic.publish(). Topic.when_written() reports when it is on disk, if the channel has files.
    """
    refused = prepare(broker, topic, channel)
    return outcome(topic, put_back(topic, channel, body, <uint32_t> len(body))) if refused is None else refused


def synced(Broker broker not None, Channel channel not None) -> Awaitable[bool]:
    """Awaits that the channel's writes so far survive a power failure, too. False: its disk failed."""
    return _sync(broker.disks, channel.backlog.disk)


async def _sync(disks, disk):
    if disk is None:
        return True
    disks.syncer.start(disk)
    await disks.synced(disk)
    return disk.name not in disks.syncer.failing


@cython.final
cdef class Taken:
    """Messages being moved from one channel to another."""

    def __init__(self, Channel source not None):
        """Messages from memory or files of a channel, being moved to another one."""
        self.source = source

    def __dealloc__(self):
        cdef Trash trash = Trash.new(None)
        trash.take_heap(0, &self.heap)

    def move(self, Broker broker not None, Topic topic not None, Channel channel not None,
             int64_t most) -> tuple[int, int]:
        """Takes up to `most` messages, until the slice is over, and puts them into another channel, like put_again().

        Returns the count, and the result of put_again(). Call finish() or give_back() afterwards.
        """
        cdef int result = PUT_MEMORY
        cdef Delivery *delivery
        cdef Entry entry
        cdef int64_t count = 0
        refused = prepare(broker, topic, channel)
        if refused is not None:
            return 0, refused
        broker.slicer.begin(broker.clock.monotonic)
        while count < most and not topic.commit.is_full():
            if not (heap_reserve(&self.heap) and delivery_reserve()):
                result = PUT_NO_MEMORY
                break
            if not self.source.backlog.pop(&entry):
                break
            delivery = delivery_new(entry.message, entry.attempts)
            delivery.place = self.source.backlog.place
            delivery.deadline_ns = entry.message.timestamp_ns
            heap_push(&self.heap, delivery)
            result = put_back(topic, channel, entry.message.body, entry.message.size)
            if is_refused(result) or result == PUT_DROPPED:
                give_back(self.source, &self.heap, delivery)
                break
            count += 1
            if broker.slicer.over():
                break
        return count, outcome(topic, result)

    def finish(self):
        """They are written in the target: finishes them in the source."""
        cdef Delivery *delivery
        while self.heap.count and not self.source.exiting:      # a deleted channel's are freed with this
            delivery = heap_first(&self.heap)
            heap_remove(&self.heap, delivery)
            self.source.backlog.done(delivery.place)
            delivery_free(delivery)

    def give_back(self):
        """Requeues them in the source."""
        while self.heap.count and not self.source.exiting and give_back(self.source, &self.heap,
                                                                        heap_first(&self.heap)):
            pass
        self.finish()       # no memory: they stay in the target


cdef bint give_back(Channel source, Heap *heap, Delivery *delivery) noexcept:
    """False: no memory; it stays in the heap."""
    message_ref(delivery.message)
    if source.backlog.put(delivery.message, delivery.attempts, 0, True, delivery.place) == PUT_NO_MEMORY:
        message_unref(delivery.message)
        return False
    heap_remove(heap, delivery)
    delivery_free(delivery)
    return True


# ====================================================================== cancel
# Cancels messages that a channel has deferred, by id or by offset in a log.

@cython.final
cdef class Search:
    """A search through the deferred messages of a channel, backwards from the end of the heap: meanwhile a removal
    moves others only to places not searched yet. Only an added message may move one to a searched place; then the
    search starts over at once."""

    cdef Channel channel
    cdef char id[16]
    cdef uint32_t at                # earlier items of the heap are still to be searched
    cdef uint64_t added             # rises with each added message
    cdef bint passed                # some may have moved to a searched place

    def __init__(self, Channel channel not None, bytes message_id not None):
        if len(message_id) != MESSAGE_ID_BYTES:
            raise ValueError(message_id)
        self.channel = channel
        memcpy(self.id, <const char *> message_id, MESSAGE_ID_BYTES)
        self.at = channel.delayed.count
        self.added = self._added()

    cdef uint64_t _added(self) noexcept:
        return self.channel.counts.message_count + self.channel.counts.requeue_count + self.channel.counts.timeout_count

    def step(self) -> bool | None:
        """Searches until the slice is over: whether it was found; None: not known yet."""
        cdef Channel channel = self.channel
        cdef Delivery *delivery
        cdef int steps = STEPS
        if channel.exiting:
            return False
        channel.clock.refresh()
        channel.slicer.begin(channel.clock.monotonic)
        self.passed |= self.added != self._added()
        self.added = self._added()
        self.at = min(self.at, channel.delayed.count)
        while True:
            while self.at:
                self.at -= 1
                delivery = channel.delayed.items[self.at].delivery
                if memcmp(delivery.message.id, self.id, MESSAGE_ID_BYTES) == 0:
                    return self._take(delivery)
                steps -= 1
                if steps == 0:
                    if channel.slicer.over() and not self.passed:
                        return None
                    steps = STEPS
            if not self.passed:
                return False
            self.passed = False
            self.at = channel.delayed.count

    cdef bint _take(self, Delivery *delivery) except *:
        """Finishes it, unless it is due: then it is about to be delivered."""
        if delivery.deadline_ns <= self.channel.clock.monotonic:
            return False
        heap_remove(&self.channel.delayed, delivery)
        self.channel.backlog.done(delivery.place)
        delivery_free(delivery)
        return True


def take_logged(Channel channel not None, int64_t offset) -> bool:
    """The same for a message of the topic's log."""
    cdef Cursor cursor = channel.cursor
    cdef int64_t at
    channel.clock.refresh()
    if channel.exiting or cursor is None:
        return False
    if offset >= cursor.next:
        if offsets_have(&cursor.skips, offset) or cursor.log.delay_of(offset) <= channel.clock.monotonic:
            return False
        cursor.skip(offset, offset + 1)
        return True
    for at in range(cursor.deferred.count):
        if cursor.deferred.items[at].offset == offset:
            if cursor.deferred.items[at].due_ns <= channel.clock.monotonic:
                return False
            deferred_take(&cursor.deferred, at)
            cursor.done(offset)
            return True
    return False


def is_on_disk(Channel channel not None, bytes message_id not None) -> bool:
    """Whether it is deferred in the channel's disk queue, from which it cannot be removed."""
    return message_id in channel.backlog.delays
