"""`nsqc worker`: runs a Python function for each message of a channel."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nsqc.client.errors import ClientError, HandlersStuck, NotOffered, Refused, TlsRefused, WrongPort
from nsqc.log.formats import visible, visible_json, visible_lines
from nsqc.options.option import Kind, Option, S
from nsqc.tools.declare import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_PERMANENT,
    HIGHEST_IN_FLIGHT,
    OUTPUT,
    TCP_NODES,
    Argument,
    Tool,
    ToolError,
    UsageError,
    Values,
    suggestion,
)
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from nsqc.client import aio
    from nsqc.client.frames import Message
    from nsqc.client.handling import AllOptions, GivenUp
    from nsqc.tools.cluster import Cluster


# ====================================================================== log lines
# The log of `nsqc worker` on stderr: the client's, the worker's, and the application's own.

PREFIX = "nsq_"     # of the fields that nsqc.client.handling adds to records


class TextForm(logging.Formatter):
    """One line for a record, and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname} {visible(record.getMessage())}"
        if record.exc_info:
            line += f"\n{visible_lines(self.formatException(record.exc_info))}"
        return line


class JsonForm(logging.Formatter):
    """One JSON object for a record."""

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        fields = {"time": round(record.created, 6), "level": record.levelname.lower(), "logger": record.name,
                  "text": record.getMessage()}
        fields |= {name.removeprefix(PREFIX): value for name, value in vars(record).items() if name.startswith(PREFIX)}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(fields, ensure_ascii=False, default=str))


def set_up(form: str, verbose: bool) -> None:
    """Configures logging to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonForm() if form == "json" else TextForm())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if verbose:
        logging.getLogger("nsqc.worker").setLevel(logging.DEBUG)


# ====================================================================== worker

PLACE = "nsqc worker"
HANDLING = "Handling"
# Options of a Worker object in the module.
OF_A_WORKER = ("log-format", "reload", "verbose")
RELOAD_SECONDS = 0.3    # between looks for changed files


def run(values: Values) -> int:
    """`nsqc worker`."""

    set_up(values.text("log-format"), values.flag("verbose"))
    if values.flag("reload") and (code := reloading()) is not None:
        return code
    handler = loaded(values.text("HANDLER"))
    try:
        return run_loaded(values, handler)
    except (Refused, WrongPort, NotOffered, TlsRefused) as error:
        raise ToolError(str(error), code_of(error)) from None
    except HandlersStuck as error:
        raise ToolError(str(error), EXIT_FAILED) from None


def reloading() -> int | None:
    """Restarts a child process whenever a Python file in or below the working folder changes. Returns None in a child,
    which has to do the work; in the parent the exit code, after SIGTERM or SIGINT."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.append(number))
    while True:
        seen = changed_at()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)    # a Ctrl-C is for the parent, which passes it on
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            return None
        ended = 0
        while not signals and changed_at() == seen:
            time.sleep(RELOAD_SECONDS)
            if not ended:
                ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
        if signals:
            return max(os.waitstatus_to_exitcode(status), 0)
        logging.getLogger("nsqc.worker").info("a Python file has changed: reloading")


def changed_at() -> dict[str, int]:
    """The times of the last changes of Python files in or below the working folder, without hidden folders."""
    found = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            with suppress(OSError):     # deleted meanwhile
                found[path] = os.stat(path).st_mtime_ns
    return found


def code_of(error: ClientError) -> int:
    """The exit code for the end of all connections."""
    # The limit of a channel's consumers: others may leave.
    return EXIT_FAILED if isinstance(error, Refused) and error.code == "E_SUB_FAILED" else EXIT_PERMANENT


def run_loaded(values: Values, handler: Any) -> int:    # Any: of a module of the user's
    """Runs a function or a Worker; returns the exit code. Raises ClientError."""
    if is_worker(handler):
        given = next((name for name in OPTION_NAMES if values.given(name)), "")
        if given and given not in OF_A_WORKER:
            raise UsageError(f"{values.text('HANDLER')} is a Worker, which has its own topic, channel and options: "
                             f"{given if given.isupper() else f'--{given}'} does not apply", PLACE)
        return run_worker(handler)
    if not callable(handler):
        raise UsageError(f"{values.text('HANDLER')} is of type {type(handler).__name__}: neither a function nor a "
                         "Worker", PLACE)
    for name in ("TOPIC", "CHANNEL"):
        if not values.text(name):
            raise UsageError(f"{name.lower()} missing: nsqc worker MODULE:NAME TOPIC CHANNEL", PLACE)
    return run_handler(values, handler)


def loaded(name: str) -> Any:   # Any: of a module of the user's
    """The object named by MODULE:NAME; modules are searched in the working folder first. Raises UsageError,
    ToolError."""
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise UsageError(f"{name!r} is not MODULE:NAME, such as orders.billing:handle", PLACE)
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)   # Any: as above
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise UsageError(f"no module {module_name!r} in {os.getcwd()} or on Python's path",
                             PLACE) from None
        traceback.print_exc()
        raise ToolError(f"cannot import module {module_name!r}: {type(error).__name__}: {error}") from None
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise UsageError(f"module {module_name!r} has no {path!r}{suggestion(attribute, dir(found))}", PLACE)
        found = getattr(found, attribute)
    return found


def is_worker(found: object) -> bool:
    """Whether it is a Worker of either kind."""
    from nsqc.client.worker import Worker

    if isinstance(found, Worker):
        return True
    module = sys.modules.get("nsqc.client.aio.worker")      # asyncio is slow to import
    return module is not None and isinstance(found, module.Worker)


def is_coroutine(handler: Any) -> bool:     # Any: of a module of the user's
    """Whether a handler has to run on an event loop."""
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def run_worker(worker: Any) -> int:     # Any: a Worker of either kind
    """Runs it until a signal; the exit code."""
    from nsqc.client.worker import Worker

    if isinstance(worker, Worker):
        worker.run()
    else:
        import asyncio

        asyncio.run(until_end(worker))
    return EXIT_OK


async def until_end(worker: aio.Worker) -> None:
    """Runs a worker on an event loop. A stuck coroutine may ignore its cancellation, or block the loop, so the process
    ends here."""
    worker.on_hung = leave
    try:
        await worker.run()
    except HandlersStuck as error:
        logging.getLogger("nsqc.worker").error("%s", error)
        leave()


def leave() -> None:
    """Ends the process from any thread."""
    logging.shutdown()
    os._exit(EXIT_FAILED)


def run_handler(values: Values, handler: Any) -> int:   # Any: of a module of the user's
    """Creates a worker of a function, and runs it; returns the exit code."""
    from nsqc.client.commands import topic_name
    from nsqc.tools.cluster import Cluster

    if values.text("dead-letters"):
        topic_name(values.text("dead-letters"))
    cluster = Cluster(values, PLACE)
    if is_coroutine(handler):
        import asyncio

        asyncio.run(run_coroutines(values, cluster, handler))
    else:
        run_threads(values, cluster, handler)
    return EXIT_OK


def run_threads(values: Values, cluster: Cluster, handler: Any) -> None:    # Any: as above
    """A blocking worker."""
    from nsqc.client.producer import Producer
    from nsqc.client.worker import Worker

    dead_letters = values.text("dead-letters")
    with Producer(cluster.nsqd, nsqlookupd=cluster.nsqlookupd, timeout=cluster.timeout,
                  **cluster.connection_options()) as producer:
        def give_up(message: Message, error: BaseException | None) -> None:
            if not message.move_to(dead_letters, reason_of(error)):
                producer.publish(dead_letters, message.body)
        Worker(values.text("TOPIC"), values.text("CHANNEL"), cluster.nsqd, handler=handler,
               **options(values, cluster, give_up if dead_letters else None)).run()


async def run_coroutines(values: Values, cluster: Cluster, handler: Any) -> None:   # Any: as above
    """A worker on an event loop."""
    from nsqc.client.aio.producer import Producer
    from nsqc.client.aio.worker import Worker

    dead_letters = values.text("dead-letters")
    async with Producer(cluster.nsqd, nsqlookupd=cluster.nsqlookupd, timeout=cluster.timeout,
                        **cluster.connection_options()) as producer:
        async def give_up(message: Message, error: BaseException | None) -> None:
            if not message.move_to(dead_letters, reason_of(error)):
                await producer.publish(dead_letters, message.body)
        await until_end(Worker(values.text("TOPIC"), values.text("CHANNEL"), cluster.nsqd, handler=handler,
                               **options(values, cluster, give_up if dead_letters else None)))


def reason_of(error: BaseException | None) -> str:
    """The reason of a dead letter: the exception's type; "attempts" if it was delivered too often without one."""
    name = "attempts" if error is None else type(error).__name__
    return name if is_valid_name(name.encode()) else "given_up"


def options(values: Values, cluster: Cluster, on_give_up: GivenUp | None) -> AllOptions:
    """The options of a worker."""
    found: Any = {      # Any: mypy cannot merge the two
        **cluster.connection_options(), "timeout": cluster.timeout, "nsqlookupd": cluster.nsqlookupd,
        "on_give_up": on_give_up, "concurrency": values.number("concurrency"),
        "batch": values.number("batch") or None, "batch_timeout": values.seconds("batch-timeout"),
        "handler_timeout": values.seconds("handler-timeout"), "max_stuck": values.number("max-stuck"),
        "max_messages": values.number("max-messages"),
        "max_in_flight": values.number("max-in-flight") or None, "max_attempts": values.number("max-attempts"),
        "requeue_delay": values.seconds("requeue-delay"), "max_requeue_delay": values.seconds("max-requeue-delay"),
        "max_slowdown": values.seconds("max-slowdown"), "touch_limit": values.seconds("touch-limit"),
        "stop_timeout": values.seconds("stop-timeout")}
    merged: AllOptions = found
    return merged


OPTIONS = (
    Option("concurrency", "messages handled at the same time, by threads or as tasks", Kind.INT, 1, HANDLING, least=1),
    Option("batch", "call the handler with a list of up to this many messages; default: one message", Kind.INT, None,
           HANDLING, least=1),
    Option("batch-timeout", "how long messages are gathered for a batch", Kind.DURATION, S // 5, HANDLING, least=0),
    Option("handler-timeout", "time after which a handler counts as stuck: its message is requeued, a coroutine "
                              "is cancelled, a thread replaced; 0s: never", Kind.DURATION, 0, HANDLING, least=0),
    Option("max-stuck", "number of stuck handlers that are replaced; when all others are stuck too, the worker exits "
                        "with 1", Kind.INT, 10, HANDLING, least=0),
    Option("max-messages", "exit after this many messages, for a service manager to start a new process; 0: never",
           Kind.INT, 0, HANDLING, least=0),
    Option("max-in-flight", "maximum number of messages in flight, over all nsqd; default: one per message handled at "
                            "the same time, and at least one per nsqd", Kind.INT, None, HANDLING, least=1,
           most=HIGHEST_IN_FLIGHT),
    Option("max-attempts", "deliveries after which a failing message is given up; 0: no limit", Kind.INT, 0,
           HANDLING, least=0),
    Option("dead-letters", "move given-up messages to this topic", Kind.TOPIC, "", HANDLING),
    Option("requeue-delay", "delay before a failed message is redelivered; doubles with each attempt", Kind.DURATION,
           S, HANDLING, least=0),
    Option("max-requeue-delay", "maximum of that delay", Kind.DURATION, 900 * S, HANDLING, least=0),
    Option("max-slowdown", "maximum pause of the whole channel while messages fail; 0s: no pauses", Kind.DURATION,
           120 * S, HANDLING, least=0),
    Option("touch-limit", "how long a message is touched while being handled", Kind.DURATION, 900 * S,
           HANDLING, least=0),
    Option("stop-timeout", "how long a shutdown waits for handlers", Kind.DURATION, 30 * S, HANDLING, least=0),
    Option("log-format", "format of log lines on stderr", Kind.TEXT, "text", OUTPUT, choices=("text", "json")),
    Option("reload", "restart when a Python file in or below the working folder changes; for development", Kind.BOOL,
           False, OUTPUT),
    Option("verbose", "also log finished messages", Kind.BOOL, False, OUTPUT),
    *TCP_NODES)
OPTION_NAMES = ("TOPIC", "CHANNEL", *(option.name for option in OPTIONS))
TOOL = Tool(
    ("worker",), "Run a Python function for each message of a channel.", run, options=OPTIONS,
    arguments=(
        Argument("HANDLER", "MODULE:NAME of the function, or coroutine function, that takes a message; or of a Worker",
                 Kind.TEXT),
        Argument("TOPIC", "the topic", Kind.TOPIC, required=False),
        Argument("CHANNEL", "the channel", Kind.CHANNEL, required=False)),
    text="""A handler that returns finishes its message; one that raises requeues it; nsqc.client.GiveUp gives it up.
         SIGTERM and SIGINT stop the worker: it takes no more messages, waits for running handlers, and requeues the
         rest at once. Modules are searched in the working folder first.""",
    examples=(
        ("nsqc worker billing:handle orders billing", "def handle(message) in billing.py, one message at a time"),
        ("nsqc worker billing:handle orders billing --concurrency 8 --max-attempts 5 --dead-letters orders.dead",
         "eight at once; after five attempts a message goes to another topic"),
        ("nsqc worker billing:handle orders billing --reload", "for development: restarts when billing.py changes"),
        ("nsqc worker billing:worker", "a Worker object with its own options")))
