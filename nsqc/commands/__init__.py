"""The commands of `nsqc`. Each is a module of its name in this folder, imported only when it is run.

A new command is a line here and a module with `command`: a function with typer's annotations, whose docstring is its
help and which returns the exit code (None: 0), or a typer.Typer with sub-commands. Help, man page and completions then
include it. Keep the module's imports few, and import heavy modules where they are used.

A tool is a line with the module in nsqc.tools that has its declaration, TOOL (typed.py makes a typer command of it).
Servers have their flags in Go's grammar; cli.py starts them without typer, whose import would dominate their start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nsqc.options.declared import Declaration, OptionSet

DAEMON, MESSAGES, ADMIN = "Daemon", "Messages", "Topics and nodes"
PIPELINE, SHELL = "Data pipeline", "Documents and shells"


class Command(NamedTuple):
    """A line of the help; group: the title above it; tool: the module of a tool."""

    name: str
    group: str
    help: str
    tool: str = ""


COMMANDS = (
    Command("serve", DAEMON, "Run the daemon; it takes nsqd's flags (nsqc serve --help lists them)."),
    Command("lookupd", DAEMON, "Run the lookup server; it takes nsqlookupd's flags (nsqc lookupd --help lists them)."),
    Command("admin", DAEMON, "Run the admin page; it takes nsqadmin's flags (nsqc admin --help lists them)."),
    Command("config", DAEMON, "Check, show and write configurations."),
    Command("access", DAEMON, "Create tokens, edit and check access files, and list permissions."),
    Command("log", DAEMON, "Inspect log topics, check and repair them, export them to nsqd."),
    Command("bucket", DAEMON, "List, check and remove the logs of nodes in a bucket."),
    Command("diskqueue", DAEMON, "Inspect nsqd's disk queues, check and repair their files.", "nsqc.tools.diskqueue"),
    Command("backup", DAEMON, "Copy a data path, also while its daemon runs."),
    Command("restore", DAEMON, "Copy a backup to a new data path."),
    Command("version", DAEMON, "Print nsqc's version and the NSQ version it is compatible with."),
    Command("pub", MESSAGES, "Publish lines or files (to_nsq).", "nsqc.tools.pub"),
    Command("tail", MESSAGES, "Print the messages of topics as they arrive (nsq_tail).", "nsqc.tools.tail"),
    Command("to-file", MESSAGES, "Store topics in files (nsq_to_file).", "nsqc.tools.tofile"),
    Command("relay", MESSAGES, "Publish the messages of topics to other nsqd (nsq_to_nsq).", "nsqc.tools.relay"),
    Command("to-http", MESSAGES, "Send messages to HTTP servers (nsq_to_http).", "nsqc.tools.tohttp"),
    Command("worker", MESSAGES, "Run a Python function for each message of a channel.", "nsqc.tools.worker"),
    Command("stat", MESSAGES, "Print rates and depths of a channel at intervals (nsq_stat).", "nsqc.tools.stat"),
    Command("top", MESSAGES, "Show nodes, topics, channels and clients as they change.", "nsqc.tools.top"),
    Command("peek", MESSAGES, "Show messages of a topic or channel without delivering them.", "nsqc.tools.peek"),
    Command("bench", MESSAGES, "Measure how fast an nsqd accepts and delivers messages.", "nsqc.tools.bench"),
    Command("nodes", ADMIN, "List nodes with version, uptime, health and contents.", "nsqc.tools.nodes"),
    Command("topic", ADMIN, "List, create, read, pause, empty and delete topics, and change their storage.",
            "nsqc.tools.topic"),
    Command("channel", ADMIN, "List, create, pause, empty, delete and move channels.", "nsqc.tools.channel"),
    Command("rules", ADMIN, "Declare the rules of topics and channels on all nodes.", "nsqc.tools.rules"),
    Command("dead", ADMIN, "Show dead letters, redrive them to their channels, or drop them.", "nsqc.tools.dead"),
    Command("drain", ADMIN, "Have a daemon finish what is in flight, and stop.", "nsqc.tools.drain"),
    Command("probe", ADMIN, "Say whether a server is alive, or ready, by its exit code.", "nsqc.tools.probe"),
    Command("spark", PIPELINE, "Move messages between topics, files and archives by Spark."),
    Command("man", SHELL, "Print the man page."),
    Command("completion", SHELL, "Print a completion script for a shell."),
)
# NSQ's own tools: a link of such a name takes exactly that one's flags.
ORIGINALS = {
    "nsq_tail": "nsqc.tools.original.nsq_tail", "nsq_stat": "nsqc.tools.original.nsq_stat",
    "nsq_to_file": "nsqc.tools.original.nsq_to_file", "nsq_to_http": "nsqc.tools.original.nsq_to_http",
    "nsq_to_nsq": "nsqc.tools.original.nsq_to_nsq", "to_nsq": "nsqc.tools.original.to_nsq",
}
TOOLS = {command.name: command.tool for command in COMMANDS if command.tool}
# Servers by their names in NSQ.
SERVERS = {"serve": "nsqd", "lookupd": "nsqlookupd", "admin": "nsqadmin"}

# For typer: the words after the command are a server's flags in Go's grammar, and passed on. -h must not be typer's: it
# would match every -flag with an h in it.
TAKES_FLAGS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]}


def declaration_of(name: str) -> Declaration[OptionSet]:
    """The options of a server, by its command."""
    if name == "lookupd":
        from nsqc.options.servers import LOOKUPD

        return LOOKUPD
    if name == "admin":
        from nsqc.options.servers import ADMIN_SERVER

        return ADMIN_SERVER
    from nsqc.options.declared import SERVE

    return SERVE
