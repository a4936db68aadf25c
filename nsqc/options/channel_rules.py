"""How each channel delivers.

Each value of a channel's rule comes from PUT /channel/rules, else from the first table of the config file whose glob
fits TOPIC/CHANNEL, else from the topic's rule if that has such a key, else from the default, which is nsqd's behaviour.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import msgspec

from nsqc.log import Log
from nsqc.options.channel_keys import DEFAULT, ChannelRule
from nsqc.options.declared import Options, Settings
from nsqc.options.limit_keys import DEFAULT_LIMITS
from nsqc.options.rule_scopes import CHANNELS
from nsqc.options.rules import Rules
from nsqc.options.rules_file import Values
from nsqc.options.topic_rules import TopicRules


class ChannelRules(Rules[ChannelRule]):
    """The rules of all channels, by TOPIC/CHANNEL."""

    scope = CHANNELS

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, settings: Settings,
                 log: Log, topics: TopicRules):
        """topics: the rules that those of channels begin with. Raises OSError as Rules does."""
        self._topics = topics
        super().__init__(loop, workers, data_path, settings, log)
        topics.on_change(self._topic_changed)

    def _take(self, options: Options) -> None:
        self._options = options
        self._set_globs(options.channels)

    def _topic_changed(self, name: bytes | None) -> None:
        self._known.clear()
        self._notify(None if name is None else name + b"/")

    def _has_changed(self, options: Options) -> bool:
        return options.channels != self._options.channels

    def _find(self, name: bytes) -> ChannelRule:
        of = self._topics.of(name.partition(b"/")[0])
        limits = of.limits()
        at = self._table_of(name)
        if at is not None:
            table = self._options.channels[at]
            rule = self._changed(DEFAULT, {**limits, **table.values}, f"config {table.title}")
        elif all(limits[key] == getattr(DEFAULT_LIMITS, key) for key in limits):
            rule = DEFAULT
        else:
            rule = self._changed(DEFAULT, limits, f"topic: {of.source}")
        return self._with_put(name, rule)

    @staticmethod
    def _changed(rule: ChannelRule, values: Values, source: str) -> ChannelRule:
        return msgspec.structs.replace(rule, **values, source=source)

    def forget_topic(self, name: bytes) -> None:
        """The topic is deleted: what was set for its channels goes with it."""
        self.forget_all(name + b"/")
