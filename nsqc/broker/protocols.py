"""Upward calls of this room in Python: Protocols that higher rooms implement.

Compiled code calls upward through abstract bases, which seams.pxd declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypedDict

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic


class Delays(TypedDict):
    """Delays of deferred messages, by queue name and message id."""

    topics: dict[str, dict[bytes, int]]  # milliseconds
    channels: dict[str, dict[bytes, int]]  # wall-clock nanoseconds


class BrokerOptions(Protocol):
    """Options for topics and channels: nsqc.options.declared.Options."""

    @property
    def mem_queue_size(self) -> int: ...

    @property
    def max_msg_timeout(self) -> int: ...

    @property
    def max_channel_consumers(self) -> int: ...

    @property
    def max_topics(self) -> int: ...

    @property
    def max_channels_per_topic(self) -> int: ...

    @property
    def is_topology_aware(self) -> bool: ...

    @property
    def broadcast_address(self) -> str: ...

    @property
    def node_id(self) -> int: ...

    @property
    def e2e_processing_latency_percentile(self) -> tuple[float, ...] | list[float]: ...

    @property
    def e2e_processing_latency_window_time(self) -> int: ...


class Limits(Protocol):
    """Limits on the age and amount of waiting messages: nsqc.options.limit_keys.Limits."""

    @property
    def message_ttl(self) -> int:
        """Age at which a message expires, in nanoseconds since its publish; 0: never."""

    @property
    def expired(self) -> str:
        """drop or dead-letter: the action for expired messages."""

    @property
    def max_depth(self) -> int:
        """Most waiting messages; 0: no limit."""

    @property
    def max_bytes(self) -> int:
        """Most waiting bytes; 0: no limit."""

    @property
    def overflow(self) -> str:
        """refuse, drop-oldest or dead-letter: the action at these limits, and for a log at retain_bytes."""


class TopicRule(Limits, Protocol):
    """How a topic is stored: nsqc.options.topic_rules.TopicRule."""

    @property
    def storage(self) -> str:
        """memory or log."""

    @property
    def sync(self) -> str:
        """write or fsync: acknowledge a publish to a log after this."""

    @property
    def retain_time(self) -> int:
        """How long a log keeps messages that all channels have finished, in nanoseconds; 0: not at all."""

    @property
    def retain_bytes(self) -> int:
        """Size at which a log removes or refuses messages; 0: unlimited, and no history by size."""

    @property
    def dedupe(self) -> int:
        """How long the ids of publishes are remembered, in nanoseconds; 0: not at all."""

    @property
    def dedupe_ids(self) -> int:
        """Most remembered ids."""

    @property
    def source(self) -> str:
        """Origin of the rule, for answers and errors."""

    @property
    def keeps_log(self) -> bool:
        """Whether a log is kept after its topic switched to memory, until an operator deletes it."""


class TopicRules(Protocol):
    """The rules of all topics: nsqc.options.topic_rules.TopicRules."""

    def of(self, name: bytes, /) -> TopicRule:
        """The rule of a topic, whether it exists or not."""

    def on_change(self, call: Callable[[bytes | None], object], /) -> None:
        """Registers call(name) for changes of that topic's rule; None: all topics may be affected."""


class ChannelRule(Limits, Protocol):
    """How a channel delivers: nsqc.options.channel_rules.ChannelRule. Durations are nanoseconds."""

    @property
    def is_off(self) -> bool:
        """Whether the channel delivers exactly as nsqd does."""

    @property
    def requeue_delay(self) -> int:
        """Delay after the first failed delivery if the client gave none."""

    @property
    def requeue_backoff(self) -> float:
        """Factor for each further failure."""

    @property
    def requeue_max(self) -> int:
        """The longest such delay."""

    @property
    def requeue_on_disconnect(self) -> bool:
        """Whether messages in flight to a client are requeued when its connection is lost."""

    @property
    def max_attempts(self) -> int:
        """Deliveries before a message goes to the dead-letter topic; 0: no limit."""

    def dead_topic(self, topic: bytes, /) -> bytes:
        """The dead-letter topic of a topic's channel; empty: none."""

    @property
    def max_in_flight(self) -> int:
        """Messages in flight to all consumers together; 0: no limit."""

    @property
    def ordered(self) -> bool:
        """Whether at most one message is in flight, and a failed one is redelivered next."""

    @property
    def rate(self) -> float:
        """Deliveries per second; 0: no limit."""

    @property
    def rate_burst(self) -> int:
        """Deliveries at once, after a pause."""

    @property
    def source(self) -> str:
        """Origin of the rule, for answers and errors."""

    def as_json(self) -> dict[str, str | int | float]:
        """The settings that differ from the defaults, for /stats."""


class ChannelRules(Protocol):
    """The rules of all channels: nsqc.options.channel_rules.ChannelRules. Names are TOPIC/CHANNEL."""

    def of(self, name: bytes, /) -> ChannelRule:
        """The rule of a channel, whether it exists or not."""

    def forget(self, name: bytes, /) -> None:
        """The channel is deleted."""

    def forget_topic(self, name: bytes, /) -> None:
        """The topic is deleted with its channels."""


class BrokerSettings(Protocol):
    """Options that may change: nsqc.options.declared.Settings."""

    @property
    def now(self) -> BrokerOptions: ...


class TopicListener(Protocol):
    """Notified of new and deleted topics and channels: metadata, and the registrations with nsqlookupd."""

    def __call__(self, event: str, topic: Topic, channel: Channel | None, /) -> None:
        """event: one of the names in nsqc.broker.broker."""
        ...


class TopicStarter(Protocol):
    """Starts a new topic, at once or when its channels are known: nsqc.peers.channel_lookup."""

    def __call__(self, topic: Topic, /) -> None: ...


class MetadataSaver(Protocol):
    """Saves the current state of a topic in nsqd.dat: nsqc.broker.metadata.MetadataWriter.save."""

    def __call__(self, topic: Topic, /) -> asyncio.Future[None]:
        """Done once it is on disk."""
        ...


class ChannelTimers(Protocol):
    """Calls channels at their deadlines: nsqc.broker.timers.Timers."""

    def arm(self, channel: Channel, deadline_ns: int, /) -> None:
        """Has channel.expire() called at a monotonic time; replaces an earlier deadline."""
        ...

    def disarm(self, channel: Channel, /) -> None:
        """The channel is deleted."""
        ...

    def resume_later(self, queue: Topic | Channel, /) -> None:
        """Has queue.resume() called soon."""
        ...
