"""The cause of a failure in Spark, without the stack traces of Java and Python. Knows no Spark."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import TracebackType

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
