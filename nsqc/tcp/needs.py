"""Requirements of each V2 command. nsqc/tcp/commands.pyx checks them before it acts; see permit() there."""

from __future__ import annotations

PUBLISH, CONSUME, NOTHING = "publish", "consume", ""

# Commands for messages in flight need a subscription, whose permission was checked.
COMMANDS = {
    "IDENTIFY": NOTHING, "AUTH": NOTHING, "NOP": NOTHING,
    "PUB": PUBLISH, "MPUB": PUBLISH, "DPUB": PUBLISH, "DMPUB": PUBLISH,
    "SUB": CONSUME, "RDY": NOTHING, "FIN": NOTHING, "REQ": NOTHING, "TOUCH": NOTHING, "CLS": NOTHING,
}
