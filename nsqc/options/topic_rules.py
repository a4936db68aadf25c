"""How each topic is stored: in memory or in a log, and by which rules.

Each value of a topic's rule comes from PUT /topic/rules, else from the first table of the config file that fits the
topic, else from the option with the default for all topics, or the default of the key. Ephemeral topics always stay in
memory.
"""

from __future__ import annotations

import msgspec

from nsqc.options.declared import RULE_KEYS, Options, RuleValue
from nsqc.options.limit_keys import FROM_DEFAULTS, LIMIT_FLAGS, Limits
from nsqc.options.rule_scopes import TOPICS
from nsqc.options.rules import Rules
from nsqc.options.topic_keys import MOST_IDS
from nsqc.wire.names import is_ephemeral
from nsqc.wire.outside import Decoder

FROM_NAME = "ephemeral"


class TopicRule(Limits, frozen=True, gc=False, kw_only=True):
    """How a topic is stored, and how much and how long. storage: memory or log. For logs, sync: write or fsync;
    retain_time in nanoseconds; retain_bytes: 0 means no limit. dedupe, dedupe_ids: see nsqc.options.topic_keys."""

    storage: str
    sync: str
    retain_time: int
    retain_bytes: int
    dedupe: int = 0
    dedupe_ids: int = MOST_IDS

    def limits(self) -> dict[str, RuleValue]:
        """The values from which its channels' rules derive."""
        return {key: getattr(self, key) for key in LIMIT_FLAGS}

    @property
    def keeps_log(self) -> bool:
        """Whether the log of a topic that has switched to memory stays until an operator deletes it: if it may have
        history to keep, or if the topic only has the default rule, whose previous rule may be lost."""
        return self.storage != "log" and (self.retain_time > 0 or self.retain_bytes > 0 or self.source == FROM_DEFAULTS)


Decoder(TopicRule)     # so that no two threads are the first to use it


class TopicRules(Rules[TopicRule]):
    """The rules of all topics."""

    scope = TOPICS

    def _derived(self, name: bytes) -> TopicRule:
        if is_ephemeral(name):
            return self._ephemeral
        at = self._table_of(name)
        return self._default if at is None else self._tables[at]

    def _take(self, options: Options) -> None:
        self._options = options
        defaults = {key: options.value(attribute) for key, attribute in RULE_KEYS.items()}
        self._default = msgspec.convert(defaults, TopicRule)
        self._ephemeral = msgspec.structs.replace(self._default, storage="memory", source=FROM_NAME)
        self._tables = [msgspec.structs.replace(self._default, **table.values, source=f"config {table.title}")
                        for table in options.topics]
        self._set_globs(options.topics)

    def _has_changed(self, options: Options) -> bool:
        names = ("topics", *RULE_KEYS.values())
        return any(getattr(options, name) != getattr(self._options, name) for name in names)

