"""How each channel delivers.

Each value of a channel's rule comes from PUT /channel/rules, else from the first table of the config file whose glob
fits TOPIC/CHANNEL, else from the default, which is nsqd's behaviour.
"""

from __future__ import annotations

import msgspec

from nsqc.options.channel_keys import DEFAULT, ChannelRule
from nsqc.options.declared import Options
from nsqc.options.rule_scopes import CHANNELS
from nsqc.options.rules import Rules
from nsqc.options.rules_file import Values


class ChannelRules(Rules[ChannelRule]):
    """The rules of all channels, by TOPIC/CHANNEL."""

    scope = CHANNELS

    def _take(self, options: Options) -> None:
        self._options = options
        self._tables = [msgspec.structs.replace(DEFAULT, **table.values, source=f"config {table.title}")
                        for table in options.channels]
        self._set_globs(options.channels)

    def _has_changed(self, options: Options) -> bool:
        return options.channels != self._options.channels

    def _find(self, name: bytes) -> ChannelRule:
        at = self._table_of(name)
        return self._with_put(name, DEFAULT if at is None else self._tables[at])

    @staticmethod
    def _changed(rule: ChannelRule, values: Values, source: str) -> ChannelRule:
        return msgspec.structs.replace(rule, **values, source=source)

    def forget_topic(self, name: bytes) -> None:
        """The topic is deleted: what was set for its channels goes with it."""
        self.forget_all(name + b"/")
