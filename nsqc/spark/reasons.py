"""What went wrong in Spark, without Java's and Python's stacks. Knows no Spark."""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Any

# The last line of a Python traceback that a worker has sent: nsqc.spark.options.OptionError: nsq: …
RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*)([A-Z]\w+): (\S.*)$", re.MULTILINE)
MOST_CAUSES = 20


def reason(error: BaseException) -> str:
    """One line: the last exception of a worker, one of nsqc's before any other; else what Spark has names for,
    [SUCH_AS_THIS]; else the first cause."""
    texts = causes(error)
    found = [match for text in texts if "Traceback" in text for match in RAISED.findall(text)]
    if found:
        # An error of ours may be followed by one of PySpark's own, in the handling of it.
        module, name, what = next((one for one in reversed(found) if one[0].startswith("nsqc.")), found[-1])
        return what if module.startswith("nsqc.") else f"{name}: {what}"
    lines = [next((line.strip() for line in text.splitlines() if line.strip()), "") for text in texts]
    named = list(dict.fromkeys(line for line in lines if line.startswith("[")))
    return ": ".join(named) or next((line for line in reversed(lines) if line), type(error).__name__)


def causes(error: BaseException) -> list[str]:
    """The texts of an exception and, where it was Java's, of its causes, the first cause last."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return [str(error)]
    texts = []
    while cause is not None and len(texts) < MOST_CAUSES:
        texts.append(str(cause.getMessage()))
        cause = cause.getCause()
    return texts


def is_sparks(error: BaseException) -> bool:
    """Whether it was raised by PySpark, or by Java through it."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def say_at_the_end() -> None:
    """From now on, an error of Spark's that nobody has caught ends with its reason as the last line. Idempotent."""
    before = sys.excepthook
    if getattr(before, "says_reason", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if is_sparks(error):
            print(f"\nreason: {reason(error)}", file=sys.stderr)

    says: Any = hook
    says.says_reason = True
    sys.excepthook = says
