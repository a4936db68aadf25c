"""The delivery rules of channels, declared once: name, type, range, default, help. Config tables, `/channel/rules`,
`nsqc channel rules`, checks and docs come from here. Durations are nanoseconds.
"""

# No `from __future__ import annotations`: msgspec and the declaration below read the types.
from typing import Annotated

from nsqc.options.declared import LARGEST, RuleValue, flag
from nsqc.options.durations import HOUR
from nsqc.options.flags import plain, show
from nsqc.options.limit_keys import GROUP, LIMIT_FLAGS, Limits
from nsqc.options.option import Kind, declared_in
from nsqc.wire.names import EPHEMERAL

DEAD = b".dead"         # default suffix of a dead-letter topic's name
DEAD_LETTER = "dead-letter"     # value of `expired` and `overflow` that moves messages there
MAX_NAME = 64           # bytes in a topic's name


class ChannelRule(Limits, frozen=True, gc=False, kw_only=True):
    """How a channel delivers; the defaults are nsqd's behaviour."""

    requeue_delay: Annotated[int, flag(
        Kind.DURATION, GROUP, "delay after the first delivery that times out or is requeued with 0; 0: none",
        least=0)] = 0
    requeue_backoff: Annotated[float, flag(
        Kind.FLOAT, GROUP, "factor by which the delay grows with each further delivery", least=1, most=1000)] = 1.0
    requeue_max: Annotated[int, flag(
        Kind.DURATION, GROUP, "longest such delay", least=1)] = HOUR
    requeue_on_disconnect: Annotated[bool, flag(
        Kind.BOOL, GROUP, "requeue the messages in flight to a client as soon as its connection is lost, rather than "
        "at their time-out")] = False
    max_attempts: Annotated[int, flag(
        Kind.INT, GROUP, "deliveries after which a message goes to the dead-letter topic rather than to a consumer; 0: "
        "no limit", least=0, most=65535)] = 0
    dead_letter: Annotated[str, flag(
        Kind.TOPIC, GROUP, "the dead-letter topic; empty: TOPIC.dead")] = ""
    max_in_flight: Annotated[int, flag(
        Kind.INT, GROUP, "messages in flight to all consumers together; 0: no limit", least=0, most=LARGEST)] = 0
    ordered: Annotated[bool, flag(
        Kind.BOOL, GROUP, "strict order: one message in flight at once, and no other before it is finished or moved to "
        "the dead-letter topic")] = False
    rate: Annotated[float, flag(
        Kind.FLOAT, GROUP, "deliveries a second on this node; 0: no limit", least=0, most=1_000_000_000)] = 0.0
    rate_burst: Annotated[int, flag(
        Kind.INT, GROUP, "deliveries at once after a pause; never less than rate allows in 10 ms", least=1,
        most=1_000_000)] = 1

    @property
    def is_off(self) -> bool:
        """Whether the channel delivers like nsqd's."""
        return not self.set_values().keys() - WITHOUT_EFFECT

    @property
    def moves(self) -> bool:
        """Whether the channel may move messages to its dead-letter topic, if it has one."""
        limited = self.max_depth > 0 or self.max_bytes > 0
        return (self.max_attempts > 0 or (self.message_ttl > 0 and self.expired == DEAD_LETTER)
                or (limited and self.overflow == DEAD_LETTER))

    def dead_topic(self, topic: bytes) -> bytes:
        """The dead-letter topic of a topic's channel. Empty: none, since messages would circle."""
        if self.dead_letter:
            name = self.dead_letter.encode()
        else:
            stem = topic.removesuffix(EPHEMERAL.encode())
            if stem.endswith(DEAD):
                return b""
            name = stem[:MAX_NAME - len(DEAD)] + DEAD
        return b"" if name == topic else name

    def set_values(self) -> dict[str, RuleValue]:
        """The values that differ from the defaults, by key."""
        return {key: value for key in CHANNEL_FLAGS if (value := getattr(self, key)) != getattr(DEFAULT, key)}

    def as_json(self) -> dict[str, RuleValue]:
        """The same in JSON's form: durations are text."""
        return {key: json_value(CHANNEL_FLAGS[key].kind, value) for key, value in self.set_values().items()}


CHANNEL_FLAGS = declared_in(ChannelRule) | LIMIT_FLAGS
DEFAULT = ChannelRule()
WITHOUT_EFFECT = {"expired", "overflow"}    # unless other keys are set


def json_value(kind: Kind, value: RuleValue) -> RuleValue:
    """A value of a rule as clients see it: durations are text."""
    given = plain(kind, value)
    return given if isinstance(given, (bool, int, float, str)) else show(kind, value)
