"""The documents keep up with the source: links, files they name, error codes."""

import importlib.util
import re

import pytest

from tests.support.pages import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "perf/RESULTS.md", *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
FILE = re.compile(r"`((?:[\w*-]+/)+[\w*-]+\.(?:pyx|pxd|pyi|py|c|h|md|service|socket))`")
IMPORT = re.compile(r"\bfrom (nsqc[\w.]*) import (\w+(?:, \w+)*)")
BARE = re.compile(r"`([\w-]+\.(?:pyx|pxd|pyi|py))`")
SOURCES = [path for path in sorted((ROOT / "nsqc").rglob("*")) if path.suffix in (".pyx", ".pxd", ".pyi", ".py")]
DAEMON = ("wire", "metrics", "loop", "store", "broker", "process", "net", "options", "access", "tcp", "httpd", "peers", "lookupd", "admin")
ERROR = re.compile(r"\bE(?:_[A-Z]+)+\b")


def anchors(page) -> set[str]:
    """The anchors that links may name, as GitHub derives them from headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    for name in FILE.findall(page.read_text()):
        places = (ROOT, ROOT / "nsqc", ROOT / "nsqc/store", ROOT / "tests", page.parent)
        assert any(list(place.glob(name)) for place in places), name


@pytest.mark.parametrize("page", [page for page in PAGES if IMPORT.search(page.read_text())], ids=lambda page: page.name)
def test_imports_of_examples_exist(page):
    """Also of commands and of examples that no test runs."""
    for module, names in IMPORT.findall(page.read_text()):
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}"), f"{module}.{name}"


def test_files_that_the_design_and_comments_name_exist():
    names = {path.name for path in SOURCES}
    assert set(BARE.findall((ROOT / "docs/design.md").read_text())) <= names
    for path in SOURCES:
        found = re.findall(r"(?<![\w*/-])(\w+\.(?:pyx|pxd|pyi))\b", path.read_text())
        assert set(found) <= names, path


def test_every_error_code_is_in_the_protocol():
    sent = set()
    for path in [*(ROOT / "nsqc/tcp").glob("*.pyx"), *(ROOT / "nsqc/tcp").glob("*.py")]:
        # Codes stand at the beginning of a literal; E_NAME_FAILED is composed from the command's name.
        sent |= set(re.findall(r"""["'](E(?:_[A-Z]+)+)\b""", path.read_text()))
    sent |= {f"E_{name}_FAILED" for name in ("IDENTIFY", "AUTH", "SUB", "FIN", "REQ", "TOUCH", "PUB", "MPUB", "DPUB",
                                          "DMPUB")}
    listed = set(re.findall(r"^\| `(E_\w+)`", (ROOT / "docs/protocol.md").read_text(), re.MULTILINE))
    assert sent == listed


def seams() -> dict[str, list[str]]:
    """The types in the design's table of seams, and the files that declare them."""
    rows = re.findall(r"^\| (`[^|]*\.(?:pxd|py)`) \| (`[A-Z][^|]*`) \|", (ROOT / "docs/design.md").read_text(), re.MULTILINE)
    return {name: re.findall(r"`([^`]+)`", files) for files, types in rows for name in re.findall(r"`([^`]+)`", types)}


def test_seams_are_declared_where_the_design_says():
    assert seams()
    for name, files in seams().items():
        texts = [(ROOT / "nsqc" / file).read_text() for file in files]
        assert any(re.search(rf"^(?:cdef )?class {name}\b", text, re.MULTILINE) for text in texts), (files, name)


def test_no_other_type_is_a_seam():
    """Compiled bases that another room implements, and Protocols of the daemon's rooms."""
    bases, owners = {}, {}
    for path in (ROOT / "nsqc").rglob("*.pxd"):
        room = path.relative_to(ROOT / "nsqc").parts[0]
        for name, base in re.findall(r"^cdef class (\w+)(?:\((\w+)\))?:", path.read_text(), re.MULTILINE):
            owners[name] = room
            bases[name] = base
    found = {base for name, base in bases.items() if owners.get(base, owners[name]) != owners[name]}
    for room in DAEMON:
        for path in (ROOT / "nsqc" / room).rglob("*.py"):
            found |= set(re.findall(r"^class (\w+)\(Protocol\)", path.read_text(), re.MULTILINE))
    assert found and found <= set(seams())
