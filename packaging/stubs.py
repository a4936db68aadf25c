"""Writes the stub of each compiled module beside its .pyx, for type checkers and for tests of imports.

    python packaging/stubs.py

A stub has what a .pyx and its .pxd show to Python: functions, classes, readable attributes, constants. C types become
Python's. Where C knows only `object`, `dict` or the like, the .pyx has an annotation, which Cython ignores, and the
.pxd a comment that begins with `type: T`; a comment that names None makes an attribute optional. Names are found in the
module's imports, in the standard library, or where the only class or alias of that name in nsqc is; otherwise a line
`# types: from m import N` in the .pyx imports them.
"""

from __future__ import annotations

import asyncio
import builtins
import collections.abc
import re
import typing
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BY_HAND = "frames"      # its docstrings are for users of the client
STANDARD = (collections.abc, typing, asyncio)
JOINED = ("def ", "cpdef ", "async def ", "from ", "class ", "cdef class ")
BUFFERS = {"__getbuffer__": "    def __buffer__(self, flags: int, /) -> memoryview: ...",
           "__releasebuffer__": "    def __release_buffer__(self, buffer: memoryview, /) -> None: ..."}
NUMBER = re.compile(r"(unsigned )?(u?int\d*(_t)?|char|short|long|long long|size_t|s?size_t|Py_ssize_t)")
DEFINED = re.compile(r"^(?:@.*\n)*(?:cdef )?class (\w+)|^([A-Z]\w*[a-z]\w*) = (?!re\.)", re.MULTILINE)
CLASS = re.compile(r"(?:cdef )?class (\w+)(\([^)]*\))?:")
FUNCTION = re.compile(r"( {4})?((?:async )?def) (\w+)\((.*)\)(?: -> (.*?))?:(?:\s.*)?$")
FOR_BOTH = re.compile(r"^( *)cpdef (\w+ )?(\w+)(\(.*\))(?: noexcept)?:$")     # functions that C calls, too
FIELD = re.compile(r"(?:    (\w+)|([A-Z][A-Z_]*)): ([^=]+?)(?: = .*)?(?:  #.*)?$")
CONSTANT = re.compile(r"([A-Z][A-Z_\d]*(?:, [A-Z][A-Z_\d]*)*) = (.*?)(?:  +#.*)?")


def python_type(c_type: str) -> str:
    """The Python type of an argument, a result or an attribute."""
    c_type = c_type.removeprefix("const ")
    if "[" in c_type:
        return "memoryview[int]" if c_type.startswith("int[") else "Buffer"
    if NUMBER.fullmatch(c_type):
        return "int"
    return {"bint": "bool", "double": "float", "void": "None", "tuple": "tuple[object, ...]"}.get(c_type, c_type)


def top_level(text: str) -> list[str]:
    """The parts of a list of arguments."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def argument(text: str) -> str:
    """An argument of a stub."""
    text, _, default = (part.strip() for part in text.partition("="))
    if ":" in text.partition("[")[0]:
        name, _, its_type = (part.strip() for part in text.partition(":"))
    else:
        *words, name = text.removesuffix(" not None").removesuffix(" or None").split()
        if name in ("self", "cls", "/", "*"):
            return name
        its_type = python_type(" ".join(words)) if words else "object"
        if text.endswith(" or None") or (default == "None" and words):
            its_type += " | None"
    return f"{name}: {its_type} = {default}" if default else f"{name}: {its_type}"


def attributes(text: str) -> dict[str, list[str]]:
    """Lines of the stub for readable attributes, by class."""
    found: dict[str, list[str]] = defaultdict(list)
    owner = ""
    for line in text.splitlines():
        if begins := re.match(r"cdef class (\w+)", line):
            owner = begins[1]
        shown = re.match(r"    cdef (readonly|public) (.*?)(?:\s*# *(.*))?$", line)
        if not shown:
            continue
        *words, names = re.sub(r"\s*,\s*", ",", shown[2]).split()
        comment = shown[3] or ""
        chosen = re.match(r"type: ([^;]+)", comment)
        its_type = chosen[1].strip() if chosen else (
            python_type(" ".join(words)) + (" | None" if re.search(r"\bNone\b", comment) else ""))
        for name in names.split(","):
            found[owner] += ([f"    {name}: {its_type}"] if shown[1] == "public"
                             else ["    @property", f"    def {name}(self) -> {its_type}: ..."])
    return found


def statements(pyx: str) -> list[str]:
    """Lines of a .pyx without docstrings, and with declarations that take several joined."""
    found: list[str] = []
    text = False
    for line in pyx.splitlines():
        if text or line.lstrip().startswith(('"""', 'r"""')):
            found.append("")
            text ^= line.count('"""') % 2 == 1
        elif found and found[-1].lstrip().startswith(JOINED) and (
                len(re.findall(r"[(\[]", found[-1])) > len(re.findall(r"[)\]]", found[-1]))):
            found[-1] += " " + line.strip()
        else:
            found.append(line)
    return found


class Members:
    """The lines of a stub after its imports."""

    def __init__(self, pyx: str, pxd: str):
        self.lines = [f"{name}: int" for values in re.findall(r"^cpdef enum:.*\n((?: .*\n)+)", pxd, re.MULTILINE)
                      for name in re.findall(r"^ +([A-Z_]+)", values, re.MULTILINE)]
        self._attributes = attributes(pxd + pyx)
        self._marks: list[str] = []     # decorators of the next definition
        self._in_class = False
        for line in [*statements(pyx), "end"]:
            self._add(line)

    def _add(self, line: str) -> None:
        begins = CLASS.match(line)
        if begins or (line and not line.startswith((" ", "#", "@", ")"))):
            if self._in_class and self.lines[-1].endswith(":"):
                self.lines[-1] += " ..."
            self._in_class = bool(begins)
        if begins:
            self.lines += ["@final"] * ("@cython.final" in self._marks)
            self.lines += [f"class {begins[1]}{begins[2] or ''}:", *self._attributes.get(begins[1], ())]
        elif (function := FUNCTION.match(FOR_BOTH.sub(as_python, line))) and bool(function[1]) == self._in_class:
            self._add_function(*function.groups(""))
        elif (field := FIELD.match(line)) and bool(field[1]) == self._in_class:
            self.lines.append(f"    {field[1]}: {field[3]}" if self._in_class else f"{field[2]}: {field[3]}")
        elif (constant := CONSTANT.fullmatch(line)) and (its_type := constant_type(constant[2])):
            self.lines += [f"{name}: {its_type}" for name in constant[1].split(", ")]
        self._marks = [*self._marks, line.strip()] if line.lstrip().startswith("@") else []

    def _add_function(self, indent: str, word: str, name: str, arguments: str, returns: str) -> None:
        if name == "__cinit__":
            name = "__init__"
        elif name == "__init__" and self.lines[-1].startswith("    def __init__("):
            self.lines.pop()        # of __cinit__
        if name in BUFFERS:
            self.lines.append(BUFFERS[name])
        elif name == "__init__" or not name.startswith("_") or (name.startswith("__") and returns):
            self.lines += [indent + mark for mark in self._marks if not mark.startswith("@cython")]
            its = ", ".join(map(argument, top_level(arguments)))
            self.lines.append(f"{indent}{word} {name}({its}) -> {returns or 'None'}: ...")


def as_python(line: re.Match[str]) -> str:
    """A function that Python and C can call, as one of Python's."""
    return f"{line[1]}def {line[3]}{line[4]} -> {python_type((line[2] or 'object').strip())}:"


def constant_type(value: str) -> str:
    """The type of a constant without an annotation; empty: none can be seen."""
    if re.fullmatch(r"[A-Z\d_+\-*/() ,]+", value):
        return "int"
    return "str" if value.startswith('"') else "bytes" if value.startswith('b"') else ""


def types_in(line: str) -> str:
    """The part of a line of a stub that names types."""
    if line.startswith("class"):
        return line.partition("(")[2]
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "", line)
    found = re.findall(r": ([^=]*?)(?= =|, \w+:|, /|\) ->|$)", line) + re.findall(r" -> (.*):", line)
    return line if line.lstrip().startswith("@") else " ".join(found)


def imports(pyx: str, pxd: str, body: list[str], homes: dict[str, set[str]]) -> list[str]:
    """The imports of a stub. Raises LookupError for a name without one home."""
    found = set(re.findall(r"^# types: (.*)$", pyx, re.MULTILINE))
    nearby = {name.strip(): module for text in (pxd, pyx)
              for module, names in re.findall(r"^from (nsqc[\w.]+) c?import (\([^)]*\)|.*)$", text, re.MULTILINE)
              for name in names.strip("()").replace("\n", " ").split(",")}
    known = {word for line in found for word in re.findall(r"\w+", line)} | set(dir(builtins)) | {"builtins"}
    known |= {begins[1] for line in body if (begins := CLASS.match(line))}
    for word in {word for line in body for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", types_in(line))} - known:
        if nearby.get(word) in homes[word]:
            found.add(f"from {nearby[word]} import {word}")
        elif word == "Buffer":
            found.add("from typing_extensions import Buffer")
        elif standard := next((module for module in STANDARD if hasattr(module, word)), None):
            found.add(f"from {standard.__name__} import {word}")
        elif len(homes[word]) == 1:
            found.add(f"from {min(homes[word])} import {word}")
        else:
            raise LookupError(f"{word}: it is in {sorted(homes[word])}: name one by `# types: from ... import {word}`")
    return sorted(found)


def stub(path: Path, homes: dict[str, set[str]]) -> str:
    """The stub of a .pyx."""
    pyx, header = path.read_text(), path.with_suffix(".pxd")
    pxd = header.read_text() if header.exists() else ""
    body = Members(pyx, pxd).lines
    if "    def bytes(self) -> int: ..." in body:       # hides the type
        body = ["import builtins", *(re.sub(r"(?<=[^\w.])bytes(?=[^\w(:])", "builtins.bytes", line) for line in body)]
    return "\n".join([*imports(pyx, pxd, body, homes), *body, ""])


def main() -> None:
    """Writes those that differ."""
    homes: dict[str, set[str]] = defaultdict(set)
    for path in sorted(path for path in (ROOT / "nsqc").rglob("*.py*") if path.suffix in (".py", ".pyx")):
        for names in DEFINED.findall(path.read_text()):
            homes["".join(names)].add(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for path in sorted((ROOT / "nsqc").rglob("*.pyx")):
        text, target = stub(path, homes), path.with_suffix(".pyi")
        if path.stem != BY_HAND and not (target.exists() and target.read_text() == text):
            target.write_text(text)


if __name__ == "__main__":
    main()
