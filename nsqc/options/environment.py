"""Options in environment variables: NSQC_MEM_QUEUE_SIZE is --mem-queue-size. Flags win over them, they win over the
config file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from nsqc.options.declared import SERVE, Declaration, OptionSet
from nsqc.options.goflags import FlagError
from nsqc.options.option import Value
from nsqc.options.values import from_text

PREFIX = "NSQC_"
NOT_OPTIONS = ("version",)      # instructions; images and compose files have NSQC_VERSION for their own purposes
# Names that other parts of nsqc read, or that say how it was built.
OTHERS = ("NSQC_AUTH_SECRET", "NSQC_TOKEN", "NSQC_SPARK_LOG", "NSQC_VERBOSE", "NSQC_PROGRESS", "NSQC_VERSION",
          "NSQC_BUILD")
FOR_TESTS = "NSQC_TEST_"
# Kubernetes sets these in every container of a namespace that has a service named nsqc or nsqc-*.
SERVICE_LINK = re.compile(r"NSQC_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)")
NEAR = 0.6      # similarity from which a name is suggested


def variable(name: str) -> str:
    """The environment variable of an option, by its attribute name."""
    return PREFIX + name.upper()


def from_environment(declaration: Declaration[OptionSet] = SERVE, environment: Mapping[str, str] = os.environ
                     ) -> dict[str, Value]:
    """The options in the environment, by attribute name. A variable's text has the flag's form; lists are
    comma-separated. Raises FlagError, also for an unknown name: an option must not be lost to a typo."""
    known = {variable(name): name for name in declaration.flags if name not in NOT_OPTIONS}
    values: dict[str, Value] = {}
    for given, text in environment.items():
        if not given.startswith(PREFIX):
            continue
        if given in known:
            try:
                values[known[given]] = from_text(declaration.flags[known[given]].kind, text)
            except ValueError as error:
                raise FlagError(f"invalid value in environment variable {given}: {error}") from None
        elif not is_ignored(given):
            raise FlagError(unknown(given, [*known], declaration.command))
    return values


def is_ignored(given: str) -> bool:
    """Whether a name that is not an option's has another purpose."""
    return given in OTHERS or given.startswith(FOR_TESTS) or SERVICE_LINK.fullmatch(given) is not None


def unknown(given: str, known: list[str], command: str) -> str:
    """The error for an unknown name."""
    import difflib  # only after a typo

    # Without the common prefix.
    names = [name.removeprefix(PREFIX) for name in known]
    near = difflib.get_close_matches(given.removeprefix(PREFIX), names, n=1, cutoff=NEAR)
    return (f"environment variable {given} is not an option of {command}" +
            (f"; did you mean {PREFIX}{near[0]}?" if near else "; unset it"))
