"""Topics and channels have rules. Each kind has its keys, its tables in the config file and a file for values set by
PUT.
"""

from __future__ import annotations

import msgspec

from nsqc.options.channel_keys import CHANNEL_FLAGS
from nsqc.options.declared import FLAGS, RULE_KEYS, ChannelTable, RuleTable, TopicTable
from nsqc.options.limit_keys import LIMIT_FLAGS
from nsqc.options.option import Option
from nsqc.options.topic_keys import TOPIC_FLAGS
from nsqc.wire.names import is_ephemeral, is_valid_name


class Scope(msgspec.Struct, frozen=True):
    """Topics, or channels."""

    key: str                    # of its tables in the config file, and in its own file
    noun: str
    file: str                   # in the data path: values set by PUT
    call: str                   # that changes a rule
    flags: dict[str, Option]      # the declarations of the keys of a rule
    table: type[RuleTable]

    def can_have(self, name: bytes) -> bool:
        """Whether PUT may set a rule for that name; the rule of an ephemeral one would outlive it."""
        parts = name.split(b"/")
        return (len(parts) == (1 if self is TOPICS else 2)
                and all(is_valid_name(part) and not is_ephemeral(part) for part in parts))


TOPICS = Scope("topics", "topic", "nsqc.rules.json", "PUT /topic/rules",
               {key: FLAGS[name] for key, name in RULE_KEYS.items()}
               | {key: declared for key, declared in LIMIT_FLAGS.items() if key not in RULE_KEYS} | TOPIC_FLAGS,
               TopicTable)
CHANNELS = Scope("channels", "channel", "nsqc.channel-rules.json", "PUT /channel/rules", CHANNEL_FLAGS, ChannelTable)
BY_KEY = {scope.key: scope for scope in (TOPICS, CHANNELS)}


def scope_of(table: RuleTable) -> Scope:
    """The scope of a table."""
    return BY_KEY[table.of]
