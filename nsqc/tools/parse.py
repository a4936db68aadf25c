"""Parses command lines of tools: --name VALUE, --name=VALUE, -n VALUE, words; -- ends the options."""

from __future__ import annotations

import re
from collections import deque

from nsqc import paths
from nsqc.options.durations import parse_duration
from nsqc.tools.declare import Argument, Kind, Option, Tool, Value, Values, as_option
from nsqc.tools.errors import UsageError, suggestion

NS_PER_S = 10**9
NAMES = (Kind.TOPIC, Kind.CHANNEL)
PATHS = (Kind.FILE, Kind.FOLDER)
NEGATIVE = re.compile(r"-[0-9]")     # a place such as -1h; no option begins with a digit
SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class HelpWanted(Exception):
    """--help or -h."""


def parse(tool: Tool, words: list[str]) -> Values:
    """Parses a command line. Raises UsageError, HelpWanted."""
    by_flag = {f"--{option.name}": option for option in tool.options}
    by_flag |= {f"-{option.short}": option for option in tool.options if option.short}
    named = [option for option in map(as_option, tool.arguments) if option is not None]
    by_flag |= {f"--{option.name}": option for option in named}
    values: dict[str, Value] = {option.name: () if option.many and option.default is None else option.default
                                for option in (*tool.options, *named)}
    given: set[str] = set()
    plain: list[str] = []
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if word == "--":
            plain += rest
            break
        if not word.startswith("-") or word == "-" or (NEGATIVE.match(word) and word[:2] not in by_flag):
            plain.append(word)
            continue
        option, text = flag_of(tool, by_flag, word)
        if option.kind is Kind.BOOL:
            if text is not None:
                raise UsageError(f"--{option.name} takes no value", tool.words)
            values[option.name] = True
        else:
            if text is None:
                if not rest:
                    raise UsageError(f"{word} needs a value", tool.words)
                text = rest.popleft()
            value = value_of(tool, option, text, word.partition("=")[0] if word.startswith("--") else word[:2])
            if option.name in given and not option.many and values[option.name] != value:
                # The last one would count, silently overriding the others.
                raise UsageError(f"--{option.name} may be given only once", tool.words)
            before = values[option.name] if option.name in given else ()
            values[option.name] = (*(before if isinstance(before, tuple) else ()), text) if option.many else value
        given.add(option.name)
    take_arguments(tool, plain, values, given)
    return Values(values, frozenset(given))


def flag_of(tool: Tool, by_flag: dict[str, Option], word: str) -> tuple[Option, str | None]:
    """The option set by a word, and its value if the word has it. Raises UsageError, HelpWanted."""
    flag, equals, text = word.partition("=")
    if flag in ("-h", "--help") and flag not in by_flag:
        raise HelpWanted
    if flag in by_flag:
        return by_flag[flag], text if equals else None
    if not word.startswith("--") and word[:2] in by_flag:
        return by_flag[word[:2]], word[2:]     # -n5
    near = suggestion(flag, list(by_flag), ", did you mean {}?")
    raise UsageError(f"unknown option {flag}{near}", tool.words)


def value_of(tool: Tool, option: Option, text: str, flag: str) -> Value:
    """Parses a value. flag: as given. Raises UsageError."""
    try:
        value = converted(option.kind, text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}", tool.words) from None
    checked_name(tool, option.kind, flag, value)
    if option.choices and text not in option.choices:
        raise UsageError(f"{flag}: {text!r} is not one of {', '.join(option.choices)}", tool.words)
    if isinstance(value, (int, float)) and ((option.least is not None and value < option.least)
                                            or (option.most is not None and value > option.most)):
        raise UsageError(f"{flag}: {text} is not {bounds(option)}", tool.words)
    return value


def converted(kind: Kind, text: str) -> Value:
    """Raises ValueError."""
    if kind is Kind.INT:
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
            raise ValueError(f"{text!r} is not a whole number")
        return int(text)
    if kind is Kind.FLOAT:
        if not re.fullmatch(r"\d{1,18}(\.\d*)?|\.\d+", text, re.ASCII):
            raise ValueError(f"{text!r} is not a number")
        return float(text)
    if kind is Kind.DURATION:
        return parse_duration(text) / NS_PER_S
    if kind is Kind.SIZE:
        size = SIZE.fullmatch(text)
        if size is None:
            raise ValueError(f"{text!r} is not a size such as 512, 64K or 1G")
        return int(size[1]) * UNITS[size[2].upper()]
    if kind in PATHS:
        return paths.local(text)
    if kind is Kind.PLACE:
        from nsqc.options.places import parse_place  # few tools have such values

        parse_place(text)
    return text


def checked_name(tool: Tool, kind: Kind, place: str, value: Value) -> Value:
    """Checks a value. Raises UsageError if a topic or channel is empty: probably an unset variable of a script, and a
    missing name would mean something else, such as all topics."""
    if kind in NAMES and value == "":
        raise UsageError(f"{place} is empty", tool.words)
    return value


def bounds(option: Option) -> str:
    """The range of an option, for its error."""
    unit = "s" if option.kind is Kind.DURATION else ""
    if option.most is None:
        return f"{option.least or 0:.15g}{unit} or more"
    return f"from {option.least or 0:.15g}{unit} to {option.most:.15g}{unit}"


def take_arguments(tool: Tool, words: list[str], values: dict[str, Value], given: set[str]) -> None:
    """Assigns words to arguments in order, skipping those set by their options. An argument that may be repeated takes
    all remaining words, in addition to its options. Raises UsageError."""
    rest = deque(words)
    for argument in tool.arguments:
        option = as_option(argument)
        named = values[option.name] if option is not None and option.name in given else None
        if argument.many:
            before = named if isinstance(named, tuple) else ()
            values[argument.name] = (*before, *(checked_word(tool, argument, word) for word in rest))
            is_given = bool(before or rest)
            rest.clear()
        else:
            is_given = named is not None or bool(rest)
            values[argument.name] = checked_word(tool, argument, rest.popleft()) if named is None and rest else named
        if is_given:
            given.add(argument.name)
        elif argument.required:
            raise UsageError(f"{argument.name} is missing: {argument.help}", tool.words)
    if rest:
        raise UsageError(f"unexpected word {rest[0]!r}", tool.words)


def checked_word(tool: Tool, argument: Argument, word: str) -> str:
    """Checks the word for the argument. Raises UsageError."""
    try:
        value = converted(argument.kind, word)
    except ValueError as error:
        raise UsageError(f"{argument.name}: {error}", tool.words) from None
    checked_name(tool, argument.kind, argument.name, word)
    return str(value) if argument.kind in PATHS else word
