"""The rules for both topics and channels: how long messages may wait, and how many of them. Declared once; see
nsqc.options.channel_keys.
"""

# No `from __future__ import annotations`: msgspec and the declaration below read the types.
from typing import Annotated

import msgspec

from nsqc.options.declared import LARGEST, flag
from nsqc.options.option import Kind, declared_in

GROUP = "Delivery rules"
FROM_DEFAULTS = "default"


class Limits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Limits for waiting messages in a topic or a channel. By default, as in nsqd: any number of messages, for any
    time. source: where the rule comes from."""

    message_ttl: Annotated[int, flag(
        Kind.DURATION, GROUP, "time after publishing when a message that still waits expires; 0: never", least=0)] = 0
    expired: Annotated[str, flag(
        Kind.EXPIRED, GROUP, "where expired messages go: they are dropped, or moved to the dead-letter topic")] = "drop"
    max_depth: Annotated[int, flag(
        Kind.INT, GROUP, "messages that may wait; 0: no limit", least=0, most=LARGEST)] = 0
    max_bytes: Annotated[int, flag(
        Kind.INT, GROUP, "bytes of messages that may wait; 0: no limit", least=0, most=LARGEST)] = 0
    overflow: Annotated[str, flag(
        Kind.OVERFLOW, GROUP, "what happens at a limit: publishes are refused, the oldest messages are dropped, or "
        "moved to the dead-letter topic")] = "refuse"
    source: str = FROM_DEFAULTS


LIMIT_FLAGS = declared_in(Limits)
DEFAULT_LIMITS = Limits()
