"""The values of a tool's command line, from the texts of its options and its words."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from nsqc import paths
from nsqc.options.durations import format_duration
from nsqc.options.option import Kind, Option, Value
from nsqc.options.values import from_text
from nsqc.tools.declare import Argument, Tool, Values, as_option, initial
from nsqc.tools.errors import UsageError

NAMES = (Kind.TOPIC, Kind.CHANNEL)
PATHS = (Kind.FILE, Kind.FOLDER)


def parse(tool: Tool, texts: Mapping[str, Sequence[str]], words: Sequence[str]) -> Values:
    """texts: those given for each option. words: those that belong to no option. Raises UsageError."""
    options = (*tool.options, *filter(None, map(as_option, tool.arguments)))
    values = {option.name: given_value(tool, option, texts[option.name]) if texts.get(option.name) else initial(option)
              for option in options}
    given = {name for name, found in texts.items() if found}
    take_arguments(tool, deque(words), values, given)
    return Values(values, frozenset(given))


def given_value(tool: Tool, option: Option, texts: Sequence[str]) -> Value:
    """The value of an option that is given. Raises UsageError."""
    if option.kind is Kind.BOOL:
        return True
    found = [value_of(tool, option, text) for text in texts]
    if option.many:
        return tuple(map(str, found))
    if any(value != found[0] for value in found):
        # The last one would count, silently overriding the others.
        raise UsageError(f"--{option.name} may be given only once", tool.words)
    return found[0]


def value_of(tool: Tool, option: Option, text: str) -> Value:
    """Parses a value. Raises UsageError."""
    value = converted(tool, f"--{option.name}", option.kind, text)
    if option.choices and text not in option.choices:
        raise UsageError(f"--{option.name}: {text!r} is not one of {', '.join(option.choices)}", tool.words)
    if isinstance(value, (int, float)) and ((option.least is not None and value < option.least)
                                            or (option.most is not None and value > option.most)):
        raise UsageError(f"--{option.name}: {text} is not {bounds(option)}", tool.words)
    return value


def converted(tool: Tool, place: str, kind: Kind, text: str) -> Value:
    """The value of a text; place: the option or argument, for errors. Raises UsageError.

    An empty topic or channel is refused: it probably comes from an unset variable of a script, and a missing name would
    mean something else, such as all topics.
    """
    if kind in NAMES:
        if not text:
            raise UsageError(f"{place} is empty", tool.words)
        return text
    try:
        if kind in PATHS:
            return paths.local(text)
        if kind is Kind.PLACE:
            from nsqc.options.places import parse_place  # few tools have such values

            parse_place(text)
            return text
        return from_text(kind, text)
    except ValueError as error:
        raise UsageError(f"{place}: {error}", tool.words) from None


def bounds(option: Option) -> str:
    """The range of an option, for its error."""
    least, most = (format_duration(int(bound or 0)) if option.kind is Kind.DURATION else f"{bound or 0:.15g}"
                   for bound in (option.least, option.most))
    return f"{least} or more" if option.most is None else f"from {least} to {most}"


def take_arguments(tool: Tool, words: deque[str], values: dict[str, Value | None], given: set[str]) -> None:
    """Assigns words to arguments in order, skipping those set by their options. An argument that may be repeated takes
    all remaining words, in addition to its options. Raises UsageError."""
    for argument in tool.arguments:
        option = as_option(argument)
        named = values[option.name] if option is not None and option.name in given else None
        if argument.many:
            before = named if isinstance(named, tuple) else ()
            values[argument.name] = (*map(str, before), *(checked_word(tool, argument, word) for word in words))
            is_given = bool(before or words)
            words.clear()
        else:
            is_given = named is not None or bool(words)
            values[argument.name] = checked_word(tool, argument, words.popleft()) if named is None and words else named
        if is_given:
            given.add(argument.name)
        elif argument.required:
            raise UsageError(f"{argument.name} is missing: {argument.help}", tool.words)
    if words:
        raise UsageError(f"unexpected word {words[0]!r}", tool.words)


def checked_word(tool: Tool, argument: Argument, word: str) -> str:
    """The text of the word for an argument. Raises UsageError."""
    value = converted(tool, argument.name, argument.kind, word)
    return str(value) if argument.kind in PATHS else word
