"""Options proved wrong by a node's answer: errors that no retry solves, in terms of the options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import TracebackType

from nsqc.client import ClientError
from nsqc.client.errors import AuthError, NotOffered, Refused, WrongPort
from nsqc.client.lookup import AUTHORITY_HINT, CERTIFICATE_HINT, NotHttp, fetch
from nsqc.spark.options import NodeOptions, OptionError
from nsqc.wire.outside import Answer, Service, of_info, wrong_port

# ====================================================================== reasons
# The cause of a failure in Spark, without the stack traces of Java and Python. Knows no Spark.

# The last line of a Python traceback from a worker: nsqc.spark.options.OptionError: nsq: …
RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*)([A-Z]\w+): (\S.*)$", re.MULTILINE)
MOST_CAUSES = 20
_hook: Callable[[type[BaseException], BaseException, TracebackType | None], None] | None = None


def reason(error: BaseException) -> str:
    """One line: the last exception of a worker, preferably one of nsqc's; otherwise Spark's named errors,
    [SUCH_AS_THIS]; otherwise the first cause."""
    texts = causes(error)
    raised = [match for text in texts if "Traceback" in text for match in RAISED.findall(text)]
    if raised:
        # PySpark may raise its own error while it handles one of nsqc's.
        module, name, what = next((match for match in reversed(raised) if match[0].startswith("nsqc.")), raised[-1])
        return what if module.startswith("nsqc.") else f"{name}: {what}"
    lines = [next((line.strip() for line in text.splitlines() if line.strip()), "") for text in texts]
    named = list(dict.fromkeys(line for line in lines if line.startswith("[")))
    return ": ".join(named) or next((line for line in reversed(lines) if line), type(error).__name__)


def causes(error: BaseException) -> list[str]:
    """The texts of an exception and, if it is Java's, of its causes, the first cause last."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return [str(error)]
    texts: list[str] = []
    while cause is not None and len(texts) < MOST_CAUSES:
        texts.append(str(cause.getMessage()))
        cause = cause.getCause()
    return texts


def is_sparks(error: BaseException) -> bool:
    """Whether PySpark raised it, or Java through PySpark."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def print_at_exit() -> None:
    """From now on, the report of an uncaught error of Spark ends with its reason. Idempotent."""
    global _hook
    if sys.excepthook is _hook:
        return
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if is_sparks(error):
            print(f"\nreason: {reason(error)}", file=sys.stderr)

    sys.excepthook = _hook = hook


# ====================================================================== mistakes

SECONDS = 2.0           # explaining an error must not delay it much
MOST_BYTES = 1 << 20    # of an answer
OPTION, FLAG = "{}=", "--{} "       # an option's form: for a data source, and for a job


def of_nsqd(error: ClientError, address: str, options: NodeOptions) -> OptionError | None:
    """The mistake behind an error of an nsqd's TCP port; None: a retry may succeed."""
    if isinstance(error, AuthError) and "requires TLS" in error.text:
        return OptionError(f"nsq: {address}: TLS required, as authSecret is not sent in clear text: give tls=true")
    if isinstance(error, AuthError):
        return OptionError(f"nsq: {address}: {error.text}: {secret_hint(options)}")
    if isinstance(error, Refused):
        return OptionError(f"nsq: {error}: give tls=true") if "TLS required" in error.text else None
    if isinstance(error, NotOffered):
        setting = "tls=true" if error.feature == "tls" else f"compression={error.feature}"
        return OptionError(f"nsq: {error}: omit {setting}")
    if isinstance(error, WrongPort):
        found = service_at(address)
        return OptionError(f"nsq: {error if found is None else right_port(address, found, Service.NSQD_TCP)}")
    return None


def secret_hint(options: NodeOptions) -> str:
    """The remedy if a node refuses a call for lack of permission."""
    return "option authSecret does not permit it" if options.authSecret else "give option authSecret"


def in_options(text: str) -> str:
    """The text of a client's error about certificates, with the options of the data sources."""
    return (text.replace(CERTIFICATE_HINT, "give one by tlsCertFile and tlsKeyFile")
            .replace(AUTHORITY_HINT, "give others by tlsCaFile"))


# Jobs' names of the options in errors.
FLAGS = (("tls=true", "--tls"), ("option authSecret", "--auth-secret"), ("tlsCaFile", "--tls-ca-file"),
         ("tlsCertFile", "--tls-cert-file"), ("tlsKeyFile", "--tls-key-file"), ("option http", "--http"),
         ("nsqlookupd=", "--nsqlookupd "), ("nsqd=", "--nsqd "))


def in_flags(text: str) -> str:
    """A data source's error text for the users of a job."""
    if not text.startswith("nsq: "):
        return text
    for option, flag in FLAGS:
        text = text.replace(option, flag)
    return text.removeprefix("nsq: ")


def service_at(address: str) -> Answer | None:
    """The service that answers at an address; None: unknown."""
    try:
        return of_info(fetch(address, "/info", SECONDS, MOST_BYTES)[1])
    except NotHttp as error:
        return error.found
    except (OSError, ValueError):
        return None


def right_port(address: str, found: Answer, wanted: Service, form: str = OPTION) -> str:
    """The text for an address with one service where another is needed, with the option to give."""
    host, nsqd, nsqlookupd = address.rpartition(":")[0], form.format("nsqd"), form.format("nsqlookupd")
    at_nsqd = wanted is Service.NSQD_TCP
    if found.service is Service.NSQD_HTTP and found.tcp_port:
        give = "give its TCP port" if at_nsqd else "give nsqlookupd's, or"
        return f"{address} is the HTTP port of an nsqd: {give}{',' * at_nsqd} {nsqd}{host}:{found.tcp_port}"
    if found.service is Service.LOOKUPD_HTTP:
        return f"{address} is the HTTP port of an nsqlookupd: give it as {nsqlookupd}{address}"
    if found.service is Service.NSQD_TCP and not at_nsqd:
        return f"{address} is the TCP port of an nsqd: give it as {nsqd}{address}"
    if found.service is Service.LOOKUPD_TCP:
        return f"{address} is the TCP port of an nsqlookupd: give {nsqlookupd}{host}:PORT of HTTP, 4161 by default"
    if found.service is Service.FOREIGN_HTTP and at_nsqd:
        return f"{address} is an HTTP server, but not an nsqd: give nsqd's TCP port, 4150 by default"
    return f"{address}: {wrong_port(found, wanted)}"
