"""Keys of topics' rules without an option for the default, declared once: name, type, range, default, help. Durations
are nanoseconds. All of them are off by default.
"""

from __future__ import annotations

from nsqc.options.declared import RuleValue, flag
from nsqc.options.durations import HOUR
from nsqc.options.option import Kind, Option

GROUP = "Publishing"
MOST_IDS = 1_000_000

DEFAULTS: dict[str, RuleValue] = {"dedupe": 0, "dedupe_ids": MOST_IDS}

TOPIC_FLAGS: dict[str, Option] = {
    "dedupe": flag(
        Kind.DURATION, GROUP, "how long the ids of publishes are remembered: a publish whose id is known is not stored "
        "again; 0: not at all", least=0, most=30 * 24 * HOUR),
    "dedupe_ids": flag(
        Kind.INT, GROUP, "ids that are remembered; beyond that the oldest are forgotten early", least=1,
        most=100_000_000),
}
