"""All topics of one daemon: created, found, deleted, closed. Knows no clients, and files only through its disks.

Listeners are notified of new and deleted topics and channels. Metadata and the registrations with nsqlookupd use that;
the broker knows neither.
"""

import os

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from nsqc.broker.bounds cimport set_bounded, set_limits, topic_expire
from nsqc.broker.channel cimport Channel
from nsqc.broker.channelend cimport close_channel
from nsqc.broker.consumer cimport Consumer
from nsqc.broker.dead cimport EXPIRED, FAILED, OVERFLOWED
from nsqc.broker.deadletter cimport dead_publish
from nsqc.broker.figures cimport TopicCounts, add_figures
from nsqc.broker.latency cimport LatencyWindow
from nsqc.broker.logged cimport attach_log
from nsqc.broker.publishonce cimport follow_dedupe
from nsqc.broker.retired cimport retire
from nsqc.broker.topicindex cimport TopicIndex
from nsqc.loop.unread cimport Unread
from nsqc.store.backlog cimport PUT_DISK, is_refused
from nsqc.store.commit cimport CommitSchedule
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.seams cimport StoreOwner
from nsqc.store.slices cimport Slicer
from nsqc.store.space cimport DiskSpace
from nsqc.wire.names cimport name_is_ephemeral

from nsqc.broker import refusals
from nsqc.broker.origin import origin_node

TOPIC_CREATED = "topic created"
TOPIC_DELETED = "topic deleted"
CHANNEL_CREATED = "channel created"
CHANNEL_DELETED = "channel deleted"


@cython.final
cdef class Broker(TopicIndex):
    """The topics of a daemon.

    timers call channels at their deadlines; disks open disk queues; write_health is notified of failed and healed
    writes; guids creates message ids; loop: runs long work in slices and begins writes; rules say how topics are
    stored, channel_rules how channels deliver; space says whether the data path has room.
    """

    def __init__(self, settings, log, timers, disks, write_health, GuidFactory guids not None, loop=None, rules=None,
                 DiskSpace space=None, logs=None, channel_rules=None):
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
        free(self.ephemeral_retired)

    # ------------------------------------------------------------------ topics

    def get_topic(self, bytes name not None, bint loading=False):
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
        self.log.info("TOPIC(%s): created", topic.name.decode())
        self._notify(TOPIC_CREATED, topic, None)
        if not loading:
            if self.starter is None:
                topic.start()
            else:
                self.starter(topic)
        return topic

    def get_channel(self, Topic topic not None, bytes name not None, start=None):
        """As Topic.get_channel(), for a client: raises LimitReached if the topic has its maximum of channels."""
        cdef Channel channel = topic.channels.get(name)
        if channel is None:
            self._need_room(refusals.MAX_CHANNELS, self.settings.now.max_channels_per_topic, len(topic.channels),
                            topic.name)
            channel = topic.get_channel(name, start)
        return channel

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

    cdef int on_topic_deleted(self, StoreOwner topic) except -1:
        cdef TopicLog log = (<Topic> topic).log
        if log is not None:
            self.logs.remove(log)
        # If a new topic of that name exists by now, nothing has changed for listeners.
        if (<Topic> topic).name not in self.topics:
            self._notify(TOPIC_DELETED, topic, None)
        return 0

    cdef int on_last_channel_gone(self, StoreOwner topic) except -1:
        self.delete_topic((<Topic> topic).name)
        return 0

    # ------------------------------------------------------------------ for topics

    cdef StoreOwner make_channel(self, StoreOwner owner, bytes name):
        """Creates a channel for a topic that is about to add it."""
        cdef Topic topic = <Topic> owner
        cdef bint ephemeral = name_is_ephemeral(name, len(name))
        cdef object options = self.settings.now
        cdef object text = name.decode()
        # Channels of a log-backed topic need files only while its queues have messages.
        cdef bint needed = not topic.logs or topic.backlog.depth() > 0
        cdef list quantiles = list(options.e2e_processing_latency_percentile)
        latency = LatencyWindow(quantiles, options.e2e_processing_latency_window_time) if quantiles else None
        self.log.info("TOPIC(%s): new channel(%s)", topic.name.decode(), text)
        channel = Channel(name, ephemeral, self._open(topic.name.decode() + ":" + text, ephemeral, needed),
                          options.mem_queue_size,
                          topic.commit, self.clock, topic, self.timers, latency, options.max_msg_timeout,
                          options.max_channel_consumers)
        if self.channel_rules is not None:
            self._set_rule(topic, channel)
        (<Channel> channel).set_draining(self.draining)
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
        topic.log.max_file = self.logs.segment_bytes(topic.rule.retain_bytes)

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

    def rule_changed(self, name):
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
        if target and rule.moves and self._leads_to(target, topic.name):
            self.circling.add(channel)
            self.log.warn("DEAD LETTERS: %s keeps its messages: its dead-letter topic %s sends dead letters back to "
                          "topic %s, so they would circle - name another dead_letter in one of these rules", channel,
                          target.decode(), topic.name.decode(), kind=("dead letters circle", str(channel)))
            target = b""
        else:
            self.circling.discard(channel)
        channel.set_rule(rule, target)

    cdef bint _leads_to(self, bytes name, bytes goal) except -1:
        """Whether dead letters of a topic, by the rules of its channels, may come to another one."""
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
        """After a rule has changed or a channel is gone: dead letters of some channels may no longer circle."""
        cdef Channel channel
        for channel in list(self.circling):
            if channel.exiting:
                self.circling.discard(channel)
            else:
                self._set_rule(<Topic> channel.owner, channel)
                set_bounded(channel.owner)

    cdef void on_dead(self, StoreOwner channel, int error) noexcept:
        cdef Channel origin = <Channel> channel
        cdef Topic target
        cdef int reasons = 0, result
        if self.closing:
            return
        try:
            reason = os.strerror(error)
            if not error:
                target = self.get_topic(origin.dead_letter)
                result = dead_publish(target, origin, self.node, &reasons)
                if result == PUT_DISK:
                    target.commit.block(origin)
                    return
                if not is_refused(result):
                    self._moves(origin, reasons)
                    return
                reason = target.why(result)
        except Exception as failure:
            reason = failure
        self.log.error("DEAD LETTERS: messages of %s cannot be moved to topic %s and wait - %s", origin,
                       origin.dead_letter.decode(), reason, kind=("dead letters wait", str(origin)))
        origin.dead_waits = True
        origin.owner.on_moved()
        origin._try_again()

    cdef int _moves(self, Channel channel, int reasons) except -1:
        """Logs, once for a while, that messages of a channel are moved. reasons: see dead_publish()."""
        for reason, text in ((FAILED, "have failed too often"), (EXPIRED, "have expired"),
                             (OVERFLOWED, "exceed its max_depth or max_bytes")):
            if reasons & (1 << <int> reason):
                self.log.warn("DEAD LETTERS: messages of %s %s and go to topic %s", channel, text,
                              channel.dead_letter.decode(), kind=("dead letters", reason, str(channel)))
        return 0

    def channel_rule_changed(self, name):
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

    def retain(self):
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

    cdef void on_aging(self, StoreOwner topic) noexcept:
        self.watched[(<Topic> topic).name] = topic

    cdef void on_bound(self, StoreOwner topic) noexcept:
        cdef Topic of = <Topic> topic
        self.log.warn("TOPIC(%s): publishes are refused: %s", of.name.decode(), of.bound_reason,
                      kind=("bound", of.name))

    cdef int on_log_full(self, StoreOwner topic, bint full) except -1:
        cdef Topic of = <Topic> topic
        if full:
            self.log.error("TOPIC(%s): publishes are refused: %s", of.name.decode(), of.full_reason)
        else:
            self.log.info("TOPIC(%s): publishes are accepted again", of.name.decode())
        return 0

    cdef int on_log_left(self, StoreOwner topic, TopicLog log) except -1:
        self.log.info("TOPIC(%s): everything in its log is finished; the log is removed", (<Topic> topic).name.decode())
        self.logs.abandon(log)
        return 0

    cdef int on_refused(self, reason) except -1:
        self.refusals[reason] += 1
        return 0

    def refused(self, reason):
        """Counts a refused publish; reason: one of nsqc.broker.refusals."""
        self.refusals[reason] += 1

    cdef int on_channel_created(self, StoreOwner topic, StoreOwner channel) except -1:
        return self._notify(CHANNEL_CREATED, topic, channel)

    cdef int on_channel_deleted(self, StoreOwner owner, StoreOwner gone) except -1:
        cdef Topic topic = <Topic> owner
        cdef Channel channel = <Channel> gone
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

    cdef void on_written(self, StoreOwner topic, StoreOwner channel, int error) noexcept:
        if error:
            self.failing = True
            self.write_health.failed(topic, channel, error)
        else:
            self.failing = self.write_health.healed(topic, channel)

    cdef void resume_later(self, StoreOwner topic) noexcept:
        self.timers.resume_later(topic)

    cdef int _notify(self, event, topic, channel) except -1:
        if not self.closing:
            for listener in self.listeners:
                listener(event, topic, channel)
        return 0

    # ------------------------------------------------------------------ the whole daemon

    def emptied(self, queue):
        """Awaits that a topic or channel that was just emptied is also empty on disk."""
        return self.disks.synced(queue.disk)

    async def recorded(self, Topic topic not None):
        """Waits until all progress of the topic's channels so far is in its journal, if any. Raises OSError if it
        cannot be written; that is retried."""
        if topic.log is not None:
            await self.logs.recorded(topic.log)

    def removed(self):
        """Awaits that the files of all deletions so far are gone. OSError: those of a log cannot be removed; that is
        retried."""
        return self._removed()

    async def _removed(self):
        await self.disks.removed()
        if self.logs is not None:
            await self.logs.removed()

    def save_metadata(self, Topic topic not None):
        """A future that is done once the current channels and pauses of a topic are on disk."""
        return self.saver(topic)

    def halt(self, list busy not None):
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

    def close(self) -> tuple:
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
            self.log.info("TOPIC(%s): closing", topic_name)
            before = lost
            for channel in topic.channels.values():
                channel_name = channel.name.decode()
                self.log.info("CHANNEL(%s): closing", channel_name)
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
