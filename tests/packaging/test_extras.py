"""Each extra of the wheel has all that its commands need: they run where only the packages are importable that pip would
install for it.

Slow: most of the commands start Spark.
"""

import email
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.firsthour.test_data import started
from tests.packaging.test_wheel import native
from tests.spark import accesslog
from tests.spark.logs import shipped
from tests.support.daemon import batch, wait_until
from tests.support.pages import blocks
from tests.support.patience import WAIT_SECONDS

LINES = 500
LIMIT_SECONDS = 3 * WAIT_SECONDS


def closure(wheel: Path, extra: str) -> set[str]:
    """The packages that pip installs for an extra of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        own = email.message_from_bytes(archive.read(path)).get_all("Requires-Dist")
    found: set[str] = set()
    rest, seen = [("nsqc", ""), ("nsqc", extra)], set()
    while rest:
        name, wanted = rest.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        if name != "nsqc":
            found.add(name)
        lines = own if name == "nsqc" else importlib.metadata.requires(name) or ()
        for one in map(Requirement, lines):
            if one.marker is None or one.marker.evaluate({"extra": wanted}):
                rest += [(one.name.lower(), each) for each in ("", *one.extras)]
    return found


def environment(folder: Path, extra: str) -> Path:
    """bin/ of a new environment with the wheel, and links to the installed files of these packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(native()) as archive:
        archive.extractall(site)
    for name in closure(native(), extra):
        for path in importlib.metadata.files(name) or ():
            if path.parts[0] != ".." and path.suffix != ".pyc":
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(path.locate(), site / path)
                except OSError:
                    (site / path).symlink_to(path.locate())
    program = folder / "bin" / "nsqc"
    program.write_text(f"#!{folder}/bin/python\nfrom nsqc.cli import main\nmain()\n")
    program.chmod(0o755)
    return program.parent


@pytest.fixture(scope="module")
def spark_bin(tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("spark"), "spark")


class Place:
    """A folder in which the pages' commands run, with the addresses of a node in place of theirs."""

    def __init__(self, programs, folder, node):
        self.programs, self.folder, self.node = programs, folder, node
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME", "VIRTUAL_ENV")}

    def own(self, text: str) -> str:
        for usual, port in (("127.0.0.1:4150", self.node.tcp_port), ("127.0.0.1:4151", self.node.http_port)):
            text = text.replace(usual, f"127.0.0.1:{port}")
        for place in ("/shared/", "/lake/", "/checkpoints/", "/copy/", "/var/lib/"):
            text = text.replace(f'"{place}', f'"{self.folder}{place}')
        return text

    def call(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(self.programs / words[0]), *words[1:]], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=LIMIT_SECONDS)

    def succeeds(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def commands(self, page: str, heading: str) -> list[list[str]]:
        """The page's commands below a heading that run nsqc."""
        lines = [line for block in blocks(page, "", heading) for line in block.splitlines()]
        return [shlex.split(self.own(line[2:])) for line in lines if line.startswith("$ nsqc ")]


@pytest.fixture
def place(spark_bin, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    node = started(tmp_path / "data")
    yield Place(spark_bin, folder, node)
    node.close()


def test_only_the_packages_of_the_extra_are_there(place):
    told = place.succeeds("python", "-c", "import json; from importlib.metadata import distributions as found; "
                                          "print(json.dumps(sorted(one.name.lower() for one in found())))")
    names = set(json.loads(told))
    assert {"nsqc", "pyspark", "pyarrow", "typer"} <= names and not {"pandas", "numpy", "pip"} & names
    assert "BAD" not in place.succeeds("nsqc", "spark", "doctor", place.own("127.0.0.1:4150"))


@pytest.mark.long
def test_recipes(place, tmp_path):
    """Every recipe at the top of docs/spark.md, in its order."""
    place.node.http("PUT", "/topic/rules?topic=orders", b'{"storage": "log"}')
    place.node.connect().pub("mails", b"one", b"two")
    gone = started(tmp_path / "gone", "--topic-storage=log")
    gone.connect().pub("orders", b"of a node that is gone")
    assert gone.stop() == 0
    shipped(gone.data_path, f"file://{tmp_path}/bucket", "nsqd-3")
    programs = [place.own(block).replace("s3://acme-nsq/prod", f"file://{tmp_path}/bucket")
                for block in blocks("docs/spark.md", "python", "Recipes")]
    (place.folder / "all.py").write_text("".join(f"exec({program!r}, {{}})\n" for program in programs))
    told = place.succeeds("python", "all.py").replace(str(tmp_path), "")
    assert told.count("|") > 20 and re.search(r"\| *nsqd-3\| +1\|", told), told
    for name, rows in (("orders", 1000), ("mails", 2)):
        found = place.succeeds("python", "-c", "import sys, pyarrow.parquet as p, pathlib as l; print(sum("
                               "p.read_metadata(f).num_rows for f in l.Path(sys.argv[1]).glob('*.parquet')))",
                               f"{place.folder}/lake/{name}")
        assert int(found) == rows
    (place.folder / "dear.sql").write_text(blocks("docs/spark.md", "sql", "Recipes")[0])
    for words in place.commands("docs/spark.md", "Recipes"):
        place.succeeds(*words)
    assert place.node.stats("dear")["message_count"] == 985
    for words in place.commands("docs/spark.md", "SQL into topics and files"):
        place.succeeds(*(word.replace("/lake/", f"{place.folder}/lake/") for word in words))


def test_jobs(place, daemon):
    """Every command of docs/spark.md, and each format of files."""
    accesslog.write(place.folder / "access.csv", LINES)
    for heading in ("produce", "archive", "replay", "report"):
        for words in place.commands("docs/spark.md", heading):
            place.succeeds(*words)
    assert place.node.stats("access")["message_count"] == place.node.stats("access-again")["message_count"] == LINES
    assert (place.folder / "report.html").exists()

    place.node.http("PUT", "/topic/rules?topic=orders", b'{"storage": "log"}')
    place.node.connect().pub("orders", *(b'{"id": %d}' % number for number in range(1500)))
    for words in place.commands("docs/spark.md", "Jobs on log-backed topics"):
        place.succeeds(*words)
    assert place.node.stats("orders-again")["message_count"] == 1000
    for words in place.commands("docs/spark.md", "lag"):
        place.succeeds(*(word.replace("archive/_state", "orders-archive/_state") for word in words), "--topic=orders")
    for name, content in (("a.json", '{"id": 1}\n\n{"id": 2}\n'), ("b.txt", "one\ntwo\n")):
        (place.folder / name).write_text(content)
        place.succeeds("nsqc", "spark", "produce", name, "--topic", f"of.{name}", "--create", *shlex.split(place.own("--nsqd 127.0.0.1:4150")))
        assert place.node.stats(f"of.{name}")["depth"] == 2
    (place.folder / "bad.json").write_text('{"id": 1}\n{\n')
    done = place.call("nsqc", "spark", "produce", "bad.json", "--topic", "bad", "--create", *shlex.split(place.own("--nsqd 127.0.0.1:4150")))
    assert done.returncode == 1 and "bad.json, line 2: not JSON" in done.stderr.splitlines()[-1]

    dead = daemon("--mem-queue-size=0", data_path=place.folder / "node1")
    dead.post("/topic/create?topic=late")
    dead.post("/channel/create?topic=late&channel=mail")
    dead.connect().ok("MPUB late", batch(*[b"x"] * 100))
    wait_until(lambda: dead.channel("late", "mail")["depth"] == 100)
    dead.stop()
    place.node.post("/topic/create?topic=late")
    place.succeeds(*place.commands("docs/spark.md", "backfill")[-1])
    assert place.node.stats("late")["depth"] == 100


def test_sources_and_sinks(place):
    """The first program of docs/spark.md, and that of the README."""
    for name in ("shared", "checkpoints", "copy/of/data", "var/lib"):
        (place.folder / name).mkdir(parents=True)
    program = blocks("docs/spark.md", "python", "Setup")[0] + "\n" + blocks("README.md", "python", "Spark")[0]
    (place.folder / "program.py").write_text(place.own(program) + "\nprint(orders.isStreaming)\n")
    assert re.search(r"^True$", place.succeeds("python", "program.py"), re.MULTILINE)
    assert place.node.stats("copies")["depth"] == 1000


def test_the_page_about_the_client(tmp_path):
    """Without extras. Other tests run the blocks that need a web server or pytest."""
    node = started(tmp_path / "data")
    try:
        place = Place(environment(tmp_path / "slim", ""), tmp_path, node)
        programs = [block for block in blocks("docs/client.md", "python") if "import pytest" not in block and "class App" not in block]
        assert len(programs) > 9
        for program in programs:
            (tmp_path / "program.py").write_text(place.own(program))
            place.succeeds("python", "program.py")
    finally:
        node.close()


@pytest.mark.parametrize("extra,code", [
    ("tools", "import nsqc.commands.app, typer"), ("prometheus", "from nsqc.client import observing; observing.prometheus('t', 'c')"),
    ("opentelemetry", "from nsqc.client import observing; observing.opentelemetry('t', 'c')")])
def test_small_extras(tmp_path, extra, code):
    programs = environment(tmp_path / "small", extra)
    done = subprocess.run([programs / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_tools(daemon, tmp_path):
    """The README's commands that need more than the client: each can show its help, and a few run."""
    programs = environment(tmp_path / "tools", "tools")
    node = Place(programs, tmp_path, daemon())
    for line in re.findall(r"^\| (`nsqc .+?) \|", (Path(__file__).parents[2] / "README.md").read_text(), re.MULTILINE):
        names = [word for part in re.findall(r"`(.+?)`", line) for word in re.findall(r"^(?:nsqc )?([a-z-]+)", part)][:1]
        if names[0] not in ("spark",):
            node.succeeds("nsqc", names[0], "--help")
    where = shlex.split(node.own("--nsqd 127.0.0.1:4150"))
    subprocess.run([programs / "nsqc", "pub", "t", *where], input=b"hello\n", check=True, timeout=WAIT_SECONDS)
    assert node.succeeds("nsqc", "tail", "t", "--count", "1", *where) == "hello\n"
    node.succeeds("nsqc", "config", "init", "nsqc.cfg")
    node.succeeds("nsqc", "config", "check", "nsqc.cfg")
