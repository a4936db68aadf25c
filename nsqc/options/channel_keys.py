"""The delivery rules of channels, declared once: name, type, range, default, help. Config tables, `/channel/rules`,
`nsqc channel rules`, checks and docs come from here. Durations are nanoseconds.
"""

# No `from __future__ import annotations`: msgspec and the declaration below read the types.
from typing import Annotated

import msgspec

from nsqc.options.declared import HOUR, Flag, Kind, RuleValue, flag
from nsqc.options.flags import plain, show

GROUP = "Delivery rules"
SOURCE_DEFAULT = "default"


class ChannelRule(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a channel delivers. By default as nsqd's do. source: where the rule comes from."""

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
    source: str = SOURCE_DEFAULT

    @property
    def is_off(self) -> bool:
        """Whether the channel delivers as nsqd's do."""
        return not self.set_values()

    def set_values(self) -> dict[str, RuleValue]:
        """What differs from the defaults, by key."""
        return {key: value for key in CHANNEL_FLAGS if (value := getattr(self, key)) != getattr(DEFAULT, key)}

    def as_json(self) -> dict[str, RuleValue]:
        """The same as JSON has it: durations are text."""
        return {key: json_value(CHANNEL_FLAGS[key].kind, value) for key, value in self.set_values().items()}


CHANNEL_FLAGS: dict[str, Flag] = {
    name: item for name, annotation in ChannelRule.__annotations__.items()
    for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Flag)}
DEFAULT = ChannelRule()


def json_value(kind: Kind, value: RuleValue) -> RuleValue:
    """A value of a rule as clients see it: durations are text."""
    given = plain(kind, value)
    return given if isinstance(given, (bool, int, float, str)) else show(kind, value)
