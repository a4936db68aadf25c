"""Imports go down only, as docs/design.md has it, and a start imports nothing unnecessary."""

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqc.wire.codecs import LIBRARIES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nsqc"
TREES = ("nsqc", "perf", "pyspark_nsq", "pyspark_nsq_diskqueue")
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd")
# `from x import y`, `from x cimport (y, z)`, `import x`, `cimport x`, at any depth; a line of prose has no such form.
CYTHON_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]+)|c?import[ \t]+([\w., ]+?)[ \t]*(?:#.*)?$)",
    re.MULTILINE)
DIAGRAM = re.compile(r"^```imports\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOUSE = re.compile(r"^```house\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EDGES = {"typer", "httptools", "pyspark"}


# ---------------------------------------------------------------------- modules


def module_of(path: Path) -> str:
    """The module that a file is, or is a part of."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = [path for tree in TREES for path in sorted((ROOT / tree).rglob("*")) if path.suffix in SUFFIXES]
MODULES = {module_of(path) for path in FILES}


def imported(path: Path, types: bool = True) -> Iterator[str]:
    """The modules that a file imports or cimports, wherever in the file; without types, only those imported at run
    time."""
    names = python_imports(path, types) if path.suffix in (".py", ".pyi") else cython_imports(path, types)
    for module, name in names:
        # A name imported from a package may be a module of it.
        yield f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def python_imports(path: Path, types: bool = True) -> Iterator[tuple[str, str]]:
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop(0)
        if types or not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def cython_imports(path: Path, types: bool = True) -> Iterator[tuple[str, str]]:
    for found in CYTHON_IMPORT.finditer(path.read_text()):
        module, names, modules = (part or "" for part in found.groups())
        if not types and "cimport" in found[0].split() and room_of(module) == room_of(module_of(path)):
            continue
        assert not module.startswith("."), f"{path} has a relative import"
        for name in re.findall(r"[\w.]+", re.sub(r"\bas\s+\w+|#.*", "", names)):
            yield module, name
        for name in modules.split(","):
            if name.strip():
                yield name.split()[0], ""


@functools.cache
def uses(path: Path) -> frozenset[str]:
    """All that a file imports."""
    return frozenset(imported(path))


# ---------------------------------------------------------------------- rooms


def room_of(module: str) -> str:
    """The room of a module: a folder or a module of nsqc, or another top-level package. For nsqc itself: nsqc."""
    parts = module.split(".")
    return parts[1] if parts[0] == "nsqc" and len(parts) > 1 else parts[0]


def diagram() -> dict[str, set[str]]:
    """For each room in docs/design.md the rooms that it may import."""
    lines = DIAGRAM.search((ROOT / "docs/design.md").read_text())[1].splitlines()
    rooms = {line.split()[0]: set(line.split()[1:]) - {"-"} for line in lines}
    assert len(rooms) == len(lines)
    return rooms


MAY_IMPORT = diagram()


def test_every_room_is_in_the_diagram():
    assert {room_of(module) for module in MODULES} - {"nsqc"} == set(MAY_IMPORT)
    assert set().union(*MAY_IMPORT.values()) <= set(MAY_IMPORT)


def test_the_drawing_has_every_compiled_module_and_no_other():
    """A line is a room, or continues one; its modules are words followed by their purpose in parentheses."""
    drawn, room = set(), ""
    for line in HOUSE.search((ROOT / "docs/design.md").read_text())[1].splitlines():
        room = (re.findall(r"^ ([a-z][\w/]*)", line) or [room])[0]
        drawn |= {f"{room}/{name}" for name in re.findall(r"(\w+) \(", line)}
    assert drawn == {str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.pyx")}


def test_a_room_imports_only_rooms_above_it_in_the_diagram():
    """Without this order there could be a cycle of rooms."""
    rooms = list(MAY_IMPORT)
    upward = [(room, used) for at, room in enumerate(rooms) for used in MAY_IMPORT[room] & set(rooms[at:])]
    assert upward == []


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_go_down_only(room):
    paths = [path for path in FILES if room_of(module_of(path)) == room]
    assert paths
    allowed = MAY_IMPORT[room] | {room, "nsqc"}
    upward = {f"{path.relative_to(ROOT)} imports {used}" for path in paths for used in uses(path)
              if used.split(".")[0] in TREES and room_of(used) not in allowed}
    assert sorted(upward) == []


def test_no_modules_import_each_other():
    """Neither at the top nor within a function, nor through others. Types of one room may know each other."""
    found = cycles([path for path in FILES if path.suffix != ".pyi"], types=False)
    assert [f"{module} imports {name}" for module, used in sorted(found.items()) for name in sorted(used)] == []


def cycles(paths: list[Path], types: bool) -> dict[str, set[str]]:
    """The modules that import each other, perhaps through others, and what each imports of them."""
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for path in paths:
        graph[module_of(path)] |= set(imported(path, types)) & MODULES - {module_of(path)}
    # After removing modules that import none of the others, or that none imports, only cycles remain.
    while outside := {module for module, used in graph.items() if not used} | graph.keys() - set().union(*graph.values()):
        graph = {module: used - outside for module, used in graph.items() if module not in outside}
    return graph


@pytest.mark.parametrize("module", sorted(cycles([path for path in FILES if path.suffix in (".pyx", ".pxd")], True)))
def test_modules_whose_types_know_each_other_can_be_imported_first(module):
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, cwd=ROOT)


def test_the_walk_finds_imports_of_every_form(tmp_path):
    path = tmp_path / "x.pyx"
    path.write_text("cimport cython\nimport os.path, re  # both\nfrom a.b cimport (c,\n    d as e)\nfrom f import g\n"
                    "cdef h():\n    from i cimport j as k, l\n    import m as n\n")
    assert list(cython_imports(path)) == [("cython", ""), ("os.path", ""), ("re", ""), ("a.b", "c"), ("a.b", "d"),
                                          ("f", "g"), ("i", "j"), ("i", "l"), ("m", "")]
    path = tmp_path / "x.py"
    path.write_text("import a.b\nif TYPE_CHECKING:\n    import t\ndef c():\n    if d:\n        from e import f as g, h\n")
    assert list(python_imports(path)) == [("a.b", ""), ("t", ""), ("e", "f"), ("e", "h")]
    assert list(python_imports(path, types=False)) == [("a.b", ""), ("e", "f"), ("e", "h")]
    # Everything that is compiled imports something of ours, so a walk that finds nothing there would be noticed.
    assert all(any(name.startswith("nsqc.") for name in uses(PACKAGE / "broker" / f"topic{suffix}"))
               for suffix in (".pyx", ".pxd"))


@pytest.mark.parametrize("room", ["wire", "store", "broker", "tcp", "client"])
def test_the_core_knows_no_edges(room):
    for path in FILES:
        if room_of(module_of(path)) == room:
            assert not {name.split(".")[0] for name in uses(path)} & EDGES, path


def test_the_package_itself_imports_little():
    """importlib only in a checkout."""
    assert uses(PACKAGE / "__init__.py") == {"sys", "os", "importlib.machinery", "importlib.util"}


# ---------------------------------------------------------------------- the start

# A daemon without a config file, TLS, peers and snappy clients does not need these, and they would slow its start.
SPARED = {"typer", "click", "rich", "tomllib", "hashlib", "ctypes", "email", "html", "json", "pathlib", "difflib",
          "shutil", "tempfile", "random", "urllib.parse", "encodings.idna", "cramjam", "isal", "re2",
          "nsqc.commands.app", "nsqc.admin", "nsqc.httpd.admin", "nsqc.options.places", "nsqc.httpd.dead", "nsqc.httpd.debug", "nsqc.httpd.logs",
          "nsqc.httpd.peek", "nsqc.httpd.permits", "nsqc.httpd.rules", "nsqc.store.peek", "nsqc.access.keeper",
          "nsqc.httpd.metrics", "nsqc.metrics.declared", "nsqc.metrics.encoding", "nsqc.metrics.table",
          "nsqc.broker.survey",
          "nsqc.lookupd", "nsqc.lookupd.server", "nsqc.options.servers", "nsqc.net.openssl", "nsqc.net.url", "nsqc.options.check", "nsqc.peers.auth",
          "nsqc.peers.lookup", "nsqc.peers.statsd",
          "nsqc.tools", "nsqc.tools.declare", "nsqc.commands.tools"}


def test_a_start_imports_nothing_that_it_can_do_without(daemon):
    started = daemon(command=(sys.executable, "-X", "importtime", "-m", "nsqc", "serve"))
    assert started.http("GET", "/ping")[1] == b"OK"
    imported = {line.rpartition("|")[2].strip() for line in started.log_path.read_text().splitlines()
                if line.startswith("import time:")}
    assert "nsqc.daemon" in imported
    assert sorted(imported & SPARED) == []


def test_what_is_read_ahead_is_there():
    for name in LIBRARIES:
        spec = importlib.util.find_spec(name)
        assert any(Path(folder).glob("*.so") for folder in spec.submodule_search_locations), name


# ---------------------------------------------------------------------- compiled modules


def test_every_header_is_for_other_modules():
    """What no other compiled module uses belongs into the .pyx alone."""
    users: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.p[yx][xd]"):
        users.setdefault(module_of(path), set()).update(imported(path))
    headers = [path for path in PACKAGE.rglob("*.pxd") if path.with_suffix(".pyx").exists()]
    unused = [path for path in headers if not any(module_of(path) in used for module, used in users.items()
                                                  if module != module_of(path))]
    assert headers and unused == []


# ---------------------------------------------------------------------- types of msgspec


def test_types_are_known_to_msgspec_before_threads_use_them():
    """In msgspec 0.22, two threads that are the first to use a type crash the process: decoders are created when a
    module is imported, and code that converts makes the type known there."""
    for path in PACKAGE.rglob("*.py"):
        if path.is_relative_to(PACKAGE / "spark"):
            continue            # programs with one thread that decodes
        tree = ast.parse(path.read_text())
        calls = {ast.unparse(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        known = {ast.unparse(node.args[0]) for top in tree.body for node in ast.walk(top) if isinstance(node, ast.Call)
                 and not isinstance(top, (ast.FunctionDef, ast.ClassDef)) and ast.unparse(node.func) == "Decoder"}
        convert = calls.get("msgspec.convert")
        inner = [node for top in tree.body if isinstance(top, (ast.FunctionDef, ast.ClassDef)) for node in ast.walk(top)
                 if isinstance(node, ast.Call) and ast.unparse(node.func) == "Decoder"]
        assert not inner, path
        assert convert is None or ast.unparse(convert.args[1]) in known, path
