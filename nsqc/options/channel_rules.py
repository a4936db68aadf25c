"""How each channel delivers.

Each value of a channel's rule comes from PUT /channel/rules, else from the first table of the config file whose glob
fits TOPIC/CHANNEL, else from the topic's rule if that has such a key, else from the default, which is nsqd's behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor

from nsqc.log import Log
from nsqc.options.channel_keys import DEFAULT, ChannelRule
from nsqc.options.dead_letters import tables_for
from nsqc.options.declared import Options, Settings
from nsqc.options.limit_keys import DEFAULT_LIMITS
from nsqc.options.rule_scopes import CHANNELS
from nsqc.options.rules import Rules
from nsqc.options.topic_rules import TopicRule, TopicRules


class ChannelRules(Rules[ChannelRule]):
    """The rules of all channels, by TOPIC/CHANNEL."""

    scope = CHANNELS

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, settings: Settings,
                 log: Log, topics: TopicRules):
        """topics: the rules from which channels' rules derive. Raises OSError as Rules does."""
        self._topics = topics
        self._merged: dict[tuple[int | None, TopicRule], ChannelRule] = {}  # by table and topic's rule: they are few
        super().__init__(loop, workers, data_path, settings, log)
        topics.on_change(self._topic_changed)

    def _take(self, options: Options) -> None:
        self._options = options
        self._merged.clear()
        self._set_globs(options.channels)

    def _topic_changed(self, name: bytes | None) -> None:
        self._known.clear()
        self._merged.clear()
        self._notify(None if name is None else name + b"/")

    def _has_changed(self, options: Options) -> bool:
        return options.channels != self._options.channels

    def _derived(self, name: bytes) -> ChannelRule:
        return self._merged_rule(self._table_of(name), self._topics.of(name.partition(b"/")[0]))

    def _merged_rule(self, at: int | None, topic: TopicRule) -> ChannelRule:
        rule = self._merged.get((at, topic))
        if rule is None:
            rule = self._merged[at, topic] = self._merge(at, topic)
        return rule

    def _merge(self, at: int | None, topic: TopicRule) -> ChannelRule:
        """The rule derived from a table, if any, and the topic's rule."""
        limits = topic.limits()
        if at is not None:
            table = self._options.channels[at]
            return self._changed(DEFAULT, {**limits, **table.values}, f"config {table.title}")
        if all(limits[key] == getattr(DEFAULT_LIMITS, key) for key in limits):
            return DEFAULT
        return self._changed(DEFAULT, limits, f"topic: {topic.source}")

    def of_topic(self, topic: bytes, topic_rule: TopicRule | None = None) -> Iterator[tuple[str, ChannelRule]]:
        """The rules that channels of a topic may have, each with the name of a channel or a table. topic_rule: instead
        of the topic's current one."""
        topic_rule = topic_rule or self._topics.of(topic)
        tables = self._options.channels
        for at in tables_for(tables, topic.decode()):
            title = f"channels of {topic.decode()}" if at is None else tables[at].title
            yield title, self._merged_rule(at, topic_rule)
        for name, values in self._put.items():
            if name.startswith(topic + b"/"):
                rule = self._merged_rule(self._table_of(name), topic_rule)
                yield name.decode(), self._changed(rule, values, self.scope.call)

    def forget_topic(self, name: bytes) -> None:
        """A deleted topic also loses the rules set for its channels."""
        self.forget_all(name + b"/")
