"""Dependencies point one way: wire < store < broker < tcp < daemon; the compiled core knows no edges."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from nsqc.process import later

PACKAGE = Path(__file__).parent.parent / "nsqc"
IMPORT = re.compile(r"^\s*(?:from|cimport|import)\s+(nsqc(?:\.\w+)*|\w+)", re.MULTILINE)
FROM_PACKAGE = re.compile(r"^from nsqc import (.+)$|^from nsqc\.(\w+) import (.+)$", re.MULTILINE)

# What each room may use of nsqc, itself always included. Single modules stand with their names.
MAY_USE = {
    "wire": {"wire"},
    "store": {"wire", "store", "log"},
    "broker": {"wire", "store", "broker"},
    "net": {"net", "options"},
    "options": {"net", "options", "peers"},
    "tcp": {"wire", "store", "broker", "tcp", "net"},
    "peers": {"wire", "broker", "peers"},
    "client": {"wire", "client"},
    "spark": {"wire", "store", "client", "spark", "commands"},  # commands: jobs run as scripts
    "httpd": {"wire", "broker", "httpd", "net", "options"},
}
EDGES = {"typer", "httptools", "pyspark"}


def imports(path: Path) -> set[str]:
    text = path.read_text()
    found = set(IMPORT.findall(text))
    for names, _, _ in FROM_PACKAGE.findall(text):
        found |= {f"nsqc.{name.strip()}" for name in names.split(",") if name.strip() and (PACKAGE / name.strip()).is_dir()}
    return found


def files(room: str) -> list[Path]:
    return [p for p in (PACKAGE / room).rglob("*") if p.suffix in (".py", ".pyx", ".pxd")]


@pytest.mark.parametrize("room", MAY_USE)
def test_imports_go_down_only(room):
    assert files(room)
    for path in files(room):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("nsqc.")}
        assert used <= MAY_USE[room], f"{path.relative_to(PACKAGE)} uses {used - MAY_USE[room]}"


@pytest.mark.parametrize("room", ["wire", "store", "broker", "tcp", "client"])
def test_the_core_knows_no_edges(room):
    for path in files(room):
        assert not imports(path) & EDGES, path


def test_the_package_itself_imports_nothing():
    assert imports(PACKAGE / "__init__.py") == {"sys"}


# What a daemon without a config file, TLS, peers and snappy clients has no use for, and what would make its start slow.
SPARED = {"typer", "click", "rich", "tomllib", "hashlib", "ctypes", "email", "html", "json", "pathlib", "difflib",
          "shutil", "tempfile", "random", "urllib.parse", "encodings.idna", "cramjam", "isal",
          "nsqc.commands.app", "nsqc.net.openssl", "nsqc.peers.auth", "nsqc.peers.lookup_peer", "nsqc.peers.statsd"}


def test_a_start_imports_nothing_that_it_can_do_without(daemon):
    started = daemon(command=(sys.executable, "-X", "importtime", "-m", "nsqc", "serve"))
    assert started.http("GET", "/ping")[1] == b"OK"
    imported = {line.rpartition("|")[2].strip() for line in started.log_path.read_text().splitlines()
                if line.startswith("import time:")}
    assert "nsqc.daemon" in imported
    assert sorted(imported & SPARED) == []


def test_what_is_read_ahead_is_there():
    for name in later.NAMES:
        spec = importlib.util.find_spec(name)
        assert any(Path(folder).glob("*.so") for folder in spec.submodule_search_locations), name


def test_every_compiled_module_has_its_header():
    lacking = [p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.pyx") if not p.with_suffix(".pxd").exists()]
    assert lacking == []


def test_no_textual_includes_and_no_compile_time_conditions():
    for path in PACKAGE.rglob("*.p[yx][xd]"):
        assert not re.search(r"^\s*(include |DEF |IF )", path.read_text(), re.MULTILINE), path
