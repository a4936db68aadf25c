"""Rules of topics and channels for the page: their keys, as they are declared, and where dead letters go."""

from __future__ import annotations

from collections.abc import Mapping

from nsqc.options.channel_keys import CHANNEL_FLAGS, DEAD_LETTER, DEFAULT, ChannelRule, json_value
from nsqc.options.option import Kind, Option
from nsqc.options.rule_scopes import BY_KEY
from nsqc.wire.outside import Json


def key_json(key: str, declared: Option) -> Json:
    """A key of a rule, for a form. choices: all values, of a key that has few."""
    words = "true|false" if declared.kind is Kind.BOOL else declared.kind.value
    choices = words.split("|") if "|" in words else []
    return {"key": key, "kind": "choice" if choices else declared.kind.value, "help": declared.help, "choices": choices,
            "least": declared.least, "most": declared.most}


DEFAULTS = {key: json_value(declared.kind, getattr(DEFAULT, key)) for key, declared in CHANNEL_FLAGS.items()}
KEYS = {scope.noun: [key_json(key, declared) for key, declared in scope.flags.items()] for scope in BY_KEY.values()}


def dead_topic(topic: str, rules: Mapping[str, object]) -> str:
    """Where a channel's dead letters go, by those of its rules that differ from the defaults; empty: it has none."""
    if not rules.get("max_attempts") and DEAD_LETTER not in rules.values():
        return ""
    named = rules.get("dead_letter")
    return ChannelRule(dead_letter=named if isinstance(named, str) else "").dead_topic(topic.encode()).decode()


def set_rules(rules: Mapping[str, object]) -> Json:
    """The values of a channel's rule that differ from the defaults."""
    return {key: value for key, value in rules.items() if key in DEFAULTS and value != DEFAULTS[key]}
