"""The jobs' checks before Spark starts, and their parts that need no Spark."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from nsqc import charts
from nsqc.commands.app import run
from nsqc.spark import mistakes
from nsqc.spark.jobs import JOBS, inputs, nsqd_http, page, running
from nsqc.spark.jobs import inputs as json_lines
from nsqc.spark.jobs import inputs as template
from nsqc.spark.jobs.backfill import compare
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.publishing import begun, by_due, by_rate
from tests.spark.conftest import address
from tests.spark.test_queue_files import record
from tests.support.patience import WAIT_SECONDS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def spark_job(capsys):
    """spark_job(*words) -> exit code, stdout, stderr."""
    def call(*words) -> tuple[int, str, str]:
        code = run(["spark", *map(str, words)])
        return code, *capsys.readouterr()

    return call


# ---------------------------------------------------------------------- before Spark starts


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_help(spark_job, job):
    code, told, errors = spark_job(job, "--help")
    assert (code, errors) == (0, "")
    assert told.startswith(f"Usage: nsqc spark {job} ")


@pytest.mark.parametrize("words, complaint", [
    (["produce", "FILE"], "Missing option '--topic'"),
    (["produce", "FILE", "--topic=t"], "give one of --nsqd and --nsqlookupd"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--nsqlookupd=b:1"], "give one of --nsqd and --nsqlookupd"),
    (["produce", "FILE", "--topic=t", "--nsqd=nowhere"], "'nowhere' is not HOST:PORT"),
    (["produce", "FILE", "--topic=bad topic", "--nsqd=a:1"], "a name is 1 to 64 of"),
    (["produce", "FILE.no", "--topic=t", "--nsqd=a:1"], "no such file or folder: FILE.no"),
    (["produce", "EMPTY", "--topic=t", "--nsqd=a:1", "--format=text"], "no files in EMPTY"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--tls-verify", "--tls-ca-file=FILE"], "need --tls"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--tls", "--tls-ca-file=no.pem"], "no such file: no.pem"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--tls", "--tls-cert-file=FILE"], "go together"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--template={x", "--format=csv"], "template '{x'"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--template={x}", "--column=x"], "not both"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--format=xml"], "xml is not one of csv, json, parquet, text"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1"], "cannot determine the format from the file names: give --format"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--rate=0"], "is not in the range x>=0.001"),
    (["archive", "new", "--topic=t", "--nsqd=a:1", "--channel=c#ephemeral"], "would lose its messages"),
    (["compact", "."], ". is not an archive: it has no _ledger.json"),
    (["compact", "nowhere"], "nowhere does not exist"),
    (["replay", "ARCHIVE", "--nsqd=a:1", "--from=yesterday"], "yesterday is not a time such as 2026-11-21"),
    (["replay", "ARCHIVE", "--nsqd=a:1", "--from=2026-11-21", "--to=2026-11-20T23:59"], "is not before"),
    (["replay", "ARCHIVE", "--nsqd=a:1", "--rate=1", "--speed=1"], "not both"),
    (["report", "ARCHIVE", "--out=nowhere/report.html"], "is not a file in an existing folder"),
    (["backfill", "nowhere", "--nsqd=a:1"], "nowhere does not exist"),
    (["backfill", ".", "--nsqd=a:1", "--channel=no good"], "a name is 1 to 64 of"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1"], "give one of --to-topic and --to-files"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-topic=u"], "--to-topic needs --checkpoint"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-files=x", "--checkpoint=c"], "omit --checkpoint"),
    (["sql", "FILE", "--topic=t,u", "--nsqd=a:1", "--to-topic=u", "--checkpoint=c"], "u is read and written"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-files=x", "--format=xml"], "is not one of parquet, json, csv, orc"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-topic=u", "--checkpoint=c", "--format=csv"], "are for --to-files"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-files=x"], "FILE is empty; it takes a SELECT"),
    (["sql", "EMPTY", "--topic=t", "--nsqd=a:1", "--to-files=x"], "EMPTY: Is a directory"),
    (["sql", "F*", "--topic=t", "--nsqd=a:1", "--to-files=x"], "F*: No such file or directory"),
    (["sql", "BYTES", "--topic=t", "--nsqd=a:1", "--to-files=x"], "BYTES is not text in UTF-8"),
    (["sql", "FILE", "--topic=t,u,T", "--nsqd=a:1", "--to-files=x"], "Spark ignores case in the names of views"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-files=x", "--every=nan"], "nan is not a finite number"),
    (["sql", "FILE", "--topic=t", "--nsqd=a:1", "--to-files=x", "--every=1e300"], "is not in the range"),
    (["archive", "new", "--topic=t", "--nsqd=a:1", "--idle=nan"], "nan is not a finite number"),
    (["replay", "ARCHIVE", "--nsqd=a:1", "--rate=nan"], "nan is not a finite number"),
    (["replay", "ARCHIVE", "--nsqd=a:1", "--speed=inf"], "inf is not a finite number"),
    (["nope"], "No such command 'nope'"),
    (["archive", "dbfs:/x", "--topic=t", "--nsqd=a:1", "--channel=c"], "--channel needs an archive on this machine"),
    (["archive", "file://host/x", "--topic=t", "--nsqd=a:1", "--create"], "file://host/x is not a local path; write file:///PATH"),
    (["compact", "dbfs:/x"], "dbfs:/x is not a local path"),
    (["report", "dbfs:/x"], "dbfs:/x is not a local path"),
    (["report", "ARCHIVE", "--out=dbfs:/report.html"], "dbfs:/report.html is not a local path"),
    (["lag", "--nsqd=a:1", "--out=s3a://bucket/lag.html"], "is not a local path"),
    (["lag", "--nsqd=a:1", "--checkpoint=dbfs:/c"], "dbfs:/c is not a local path"),
    (["backfill", "dbfs:/x", "--nsqd=a:1"], "dbfs:/x is not a local path"),
    (["produce", "FILE", "--topic=t", "--nsqd=a:1", "--tls", "--tls-ca-file=dbfs:/a.pem"], "is not a local path"),
    (["produce", "file:FILE", "--topic=t", "--nsqd=a:1"], "file:FILE is not a local path; write file:///PATH"),
    (["produce", "file:///nowhere", "--topic=t", "--nsqd=a:1"], "no such file or folder: /nowhere"),
])
def test_usage_errors_are_one_line_and_exit_code_2(spark_job, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    (tmp_path / "BYTES").write_bytes(b"SELECT '\xff'")
    (tmp_path / "EMPTY").mkdir()
    Ledger("ARCHIVE", "t")
    code, told, errors = spark_job(*words)
    assert (code, told) == (2, "")
    assert complaint in errors and errors.startswith("nsqc spark") and errors.count("\n") == 1


@pytest.mark.parametrize("words", [
    ["archive", "new", "--topic=t", "--nsqd=a:1", "--create"], ["compact", "ARCHIVE"], ["replay", "ARCHIVE", "--nsqd=a:1"],
    ["report", "ARCHIVE", "--out=/tmp/report.html"], ["report", "{tmp_path}/ARCHIVE"], ["backfill", "ARCHIVE", "--nsqd=a:1"],
    ["lag", "--nsqd=a:1", "--out=lag.html"], ["lag", "--nsqd=a:1", "--checkpoint=ARCHIVE"],
    ["produce", "FILE", "--topic=t", "--nsqd=a:1", "--format=text"]])
def test_by_spark_submit_no_path_is_relative(spark_job, tmp_path, monkeypatch, words):
    """The driver may run in a folder of another machine, which is removed when it ends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    (tmp_path / "FILE").touch()
    Ledger("ARCHIVE", "t")
    code, told, errors = spark_job(*(word.format(tmp_path=tmp_path) for word in words))
    assert (code, told) == (2, "")
    assert "is relative" in errors and errors.count("\n") == 1


def test_a_path_of_a_job_may_begin_with_home_or_file(spark_job, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Ledger(tmp_path / "archive", "t")
    for path in ("~/archive", f"file:{tmp_path}/archive", f"file://{tmp_path}/archive"):
        code, told, errors = spark_job("compact", path)
        assert (code, told) == (0, "0 files with 0 rows are now 0\n"), errors
    assert not list(Path().glob("~*")) and not list(Path().glob("file:*"))


def test_failures_are_one_line_and_exit_code_1(spark_job, tmp_path, nsqd):
    (tmp_path / "x.txt").touch()
    Ledger(tmp_path / "archive", "t")
    queues = tmp_path / "queues"
    queues.mkdir()
    (queues / "orders:mail.diskqueue.000000.dat").write_bytes(record(b"x"))
    for what in ("topic/create?topic=known-here", "topic/create?topic=t", "channel/create?topic=t&channel=archive"):
        nsqd.post(f"/{what}")
    http = f"--http=127.0.0.1:{nsqd.http_port}"
    cases = {
        ("produce", tmp_path / "x.txt", "--topic=t", "--nsqd=127.0.0.1:1"): "no nsqd is reachable: 127.0.0.1:1: Conn",
        ("replay", tmp_path / "archive", "--nsqlookupd=127.0.0.1:1"): "no nsqlookupd is reachable",
        ("archive", tmp_path / "archive", "--topic=u", f"--nsqd={address(nsqd)}"): "is an archive of topic t, not u",
        ("archive", tmp_path, "--topic=u", f"--nsqd={address(nsqd)}", "--create"): "is not an archive, and not empty",
        ("archive", tmp_path / "new", "--topic=u", f"--nsqd={address(nsqd)}"): "is not an archive: --create creates one",
        ("backfill", nsqd.data_path, f"--nsqd={address(nsqd)}"): "is in use by an nsqd: stop it",
        ("backfill", tmp_path, f"--nsqd={address(nsqd)}"): "has no disk queues: give the data path of an nsqd",
        ("backfill", queues, f"--nsqd={address(nsqd)}"): "give it by --http",
        ("backfill", queues, f"--nsqd={address(nsqd)}", "--http=127.0.0.1:1"): "Connection refused",
        ("backfill", queues, f"--nsqd={address(nsqd)}", "--topic=Orders"):
            "has no queue of topic Orders; there is orders",
        ("backfill", queues, f"--nsqd={address(nsqd)}", "--channel=male"): "has no queue of channel male; there is mail",
        ("backfill", queues, f"--nsqd={address(nsqd)}", http): "no topic orders; there are ",
        ("produce", tmp_path / "x.txt", "--topic=none", f"--nsqd={address(nsqd)}", http):
            "no topic none; there are known-here, t",
        ("replay", tmp_path / "archive", "--topic=nown-here", f"--nsqd={address(nsqd)}", http):
            "no topic nown-here; there are known-here, t",
        ("archive", tmp_path / "archive", "--topic=t", "--channel=archiv", f"--nsqd={address(nsqd)}", http):
            "topic t has no channel archiv; there is archive; --create creates it",
    }
    for words, complaint in cases.items():
        code, told, errors = spark_job(*words)
        assert (code, told) == (1, ""), words
        assert complaint in errors and errors.startswith("nsqc spark: ") and errors.count("\n") == 1, (words, errors)


def test_a_job_by_its_file_has_the_same_exit_codes(tmp_path):
    file = Path(running.__file__).with_name("compact.py")
    Ledger(tmp_path / "archive", "t")
    for folder, code, told in ((tmp_path / "archive", 0, "0 files with 0 rows are now 0\n"), (tmp_path, 2, "")):
        done = subprocess.run([sys.executable, file, folder], capture_output=True, text=True, timeout=WAIT_SECONDS,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert (done.returncode, done.stdout) == (code, told), done
        assert done.stderr.startswith("nsqc spark: ") and "Traceback" not in done.stderr


def test_help_and_checks_import_no_spark():
    code = ("import sys\n"
            "from nsqc.commands.app import run\n"
            "assert run(['spark', 'produce', '--help']) == 0 and run(['spark', 'compact', '.']) == 2\n"
            "assert run(['spark', 'lag', '--nsqd=127.0.0.1:1']) == 1\n"
            "assert run(['version']) == 0\n"
            "print(sorted({'pyspark', 'py4j', 'pyarrow'} & sys.modules.keys()))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout.endswith("\n[]\n"), done


def test_without_pyspark_one_line_says_what_to_install(tmp_path, nsqd):
    """As on a machine without it: the import fails."""
    (tmp_path / "x.txt").write_text("x\n")
    code = ("import sys\n"
            "sys.modules['pyspark'] = None\n"
            "from nsqc.commands.app import run\n"
            f"sys.exit(run(['spark', 'produce', '{tmp_path}/x.txt', '--topic=t', '--nsqd={address(nsqd)}']))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("\nnsqc spark: pyspark is missing: pip install 'nsqc[spark]'\n")


def test_the_executable_says_that_it_has_no_spark():
    """As in the executable, whose build leaves nsqc.spark out."""
    code = ("import sys\n"
            "from nsqc.commands.app import run\n"
            "class Left:\n"
            "    def find_spec(self, name, *_):\n"
            "        if name.startswith('nsqc.spark'): raise ModuleNotFoundError(name)\n"
            "sys.meta_path.insert(0, Left())\n"
            "import importlib.util as util\n"
            "real = util.find_spec\n"
            "util.find_spec = lambda name, *a: None if name == 'nsqc.spark' else real(name, *a)\n"
            "sys.exit(run(['spark', *sys.argv[1:]]))")
    for words in ([], ["produce", "x", "--topic=t"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert done.stderr == ("nsqc spark: not part of the executable; install the Python package: "
                               "pip install 'nsqc[spark]'\n")


# ---------------------------------------------------------------------- templates, formats, words for errors


@pytest.mark.parametrize("text, pieces", [
    ("{host} {status}", [("", "host"), (" ", "status")]),
    ("{{{a.b}}}!", [("{", None), ("", "a.b"), ("}", None), ("!", None)]),
    ("ä{x}", [("ä", "x")]),
])
def test_templates(text, pieces):
    assert template.parse(text) == pieces


@pytest.mark.parametrize("text", ["", "plain", "{", "}", "{}", "{a:>3}", "{a!r}", "{a", "{{a}}"])
def test_templates_that_are_refused(text):
    with pytest.raises(template.TemplateError):
        template.parse(text)


@pytest.mark.parametrize("names, form", [
    (["a.csv"], "csv"), (["a.b.CSV.gz", "x/c.tsv"], "csv"), (["a.jsonl", "b.json.zst"], "json"),
    (["a.parquet"], "parquet"), (["access.log", "b.txt"], "text"), (["a.csv", "b.json"], None), (["folder"], None),
])
def test_the_format_is_what_all_names_say(names, form):
    assert inputs.common_format(names) == form


@pytest.mark.parametrize("text, reason", [
    ("An error occurred.\nTraceback (most recent call last):\n  File\nnsqc.spark.sink.BadRow: row 3: value is empty\n\n"
     "\tat org.apache.spark\n", "row 3: value is empty"),
    ("x\nTraceback (most recent call last):\nKeyError: 'x'\n", "KeyError: 'x'"),
    ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\n\tat org", "[PATH_NOT_FOUND] Path does not exist: "
     "file:/x. SQLSTATE: 42K03"),
])
def test_the_reason_of_a_failed_job_has_no_stack(text, reason):
    assert mistakes.reason(RuntimeError(text)) == reason


# ---------------------------------------------------------------------- pace


def batches(*sizes):
    return [pa.record_batch({"value": [b"x"] * size}) for size in sizes]


def test_by_rate_no_second_has_more_than_the_rate():
    begin = 4e9     # so far ahead that the clock does not matter
    pieces = [(piece.num_rows, due - begin) for piece, due in by_rate(batches(130, 1, 700), 100.0, begin)]
    assert sum(rows for rows, _ in pieces) == 831
    sent = 0
    for rows, due in pieces:
        assert due == pytest.approx(sent / 100, abs=1e-3)
        sent += rows
        assert rows <= 5


def test_a_rate_below_one_sends_single_rows():
    assert [(piece.num_rows, due - 4e9) for piece, due in by_rate(batches(3), 0.5, 4e9)] == [(1, 0), (1, 2), (1, 4)]


def test_by_due_rows_go_at_their_times_in_their_order():
    batch = pa.record_batch({"value": [b"a", b"b", b"c", b"d"], "due": [0, 10_000, 2_000_000, 6_000_000]})
    found = [(piece.column("value").to_pylist(), piece.schema.names, due) for piece, due in by_due([batch], 2.0, 100.0)]
    assert found == [([b"a", b"b"], ["value"], 100.0), ([b"c"], ["value"], 101.0), ([b"d"], ["value"], 103.0)]


def test_a_pace_begins_when_there_are_rows_and_a_task_done_again_keeps_the_plan():
    before = time.time()
    same, begin = begun(iter(batches(2, 3)), 100.0, False)
    assert [batch.num_rows for batch in same] == [2, 3] and before <= begin <= time.time()
    assert begun(iter(batches(2)), 4e9, False)[1] == 4e9
    assert begun(iter(batches(2)), 100.0, True)[1] == 100.0
    assert list(begun(iter([]), 100.0, False)[0]) == []


# ---------------------------------------------------------------------- counts of a backfill


def counts(published: int, **waiting) -> nsqd_http.Counts:
    return nsqd_http.Counts(Counter(t=published), Counter(waiting))


def test_a_backfill_compares_what_it_published_with_what_nsqd_took(capsys):
    compare(Counter(t=5), 5, counts(10), counts(15, t=5))
    assert capsys.readouterr().out == "t: 5 published, 5 accepted by nsqd; depth: t 5\n"
    compare(Counter(t=5), 5, counts(10), counts(17, t=7))
    assert "7 accepted by nsqd (it has other publishers, too)" in capsys.readouterr().out
    with pytest.raises(running.JobError, match="nsqd accepted 4"):
        compare(Counter(t=5), 5, counts(10), counts(14))
    with pytest.raises(running.JobError, match="5 messages expected, 4 published"):
        compare(Counter(t=5), 4, counts(10), counts(15))


# ---------------------------------------------------------------------- the report's page


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in its place."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.tags = Counter()

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        if tag != "meta":
            self.open.append(tag)
        assert not {"src", "href", "onload"} & {name for name, _ in attributes}

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def some_metrics() -> page.Metrics:
    day = 86400
    return page.Metrics(
        rows=6, bytes=3 << 20, first=10.0 * day, last=10.0 * day + 7200, late=(0.5, 2.0, 90.0, 4000.0), width=3600,
        buckets=[page.Bucket(10 * day, 5, 100, (0.5, 2.0, 80.0)), page.Bucket(10 * day + 7200, 1, 9, (1, 2, 3))],
        steps=[0, 0, 0, 4, 1, 1, 0, 0, 0, 0, 0], attempts={1: 4, 3: 2},
        sources=[page.Source("t", "a:4150", 6, 3 << 20, 1 << 20)],
        bodies=[page.Body("t", "0" * 16, "a:4150", 10.0 * day, 1 << 20, "<script>alert(1)</script>\ufffd")],
        letters=[page.Letters("t", "<mail>", "requeued", 3, 10.0 * day, 10.0 * day + 1)])


def test_the_page_is_whole_and_needs_nothing_else():
    text = page.page(some_metrics(), "Messages of <t>")
    parsed = Balanced()
    parsed.feed(text)
    assert parsed.open == [] and parsed.tags["svg"] == 8 and not parsed.tags["script"]
    assert "<h1>Messages of &lt;t&gt;</h1>" in text and "&lt;script&gt;" in text and "http" not in text
    for told in ("6</dd>", "3.0 MiB", "500 ms", "1.11 h", "<dd>2</dd>", "100.0%", "00:00", "02:00", "&lt;mail&gt;</td>"):
        assert told in text, told
    assert text.count("01:00: 0 messages, 0 B") == 2  # in both drawings: an hour without messages is an empty bar


def test_a_narrow_window_gets_drawings_and_tables_of_its_own():
    """Checks without a browser: nothing is wider than 400 pixels less the margins, no word is scaled down or leaves its
    drawing, and each value of a table stands beside its head."""
    text = page.page(some_metrics(), "t")
    assert 'name="viewport" content="width=device-width' in text and "overflow-x" not in text
    style = re.search(r"@media \(max-width: 640px\) \{(.*?)\n\}", text, re.DOTALL)[1]
    for rule in (".broad { display: none; }", ".narrow { display: block; }", "th { display: none; }",
                 "table, tbody, tr, td { display: block; }", "attr(data-head)"):
        assert rule in style, rule
    drawings = re.findall(r'<svg class="narrow" viewBox="0 0 (\d+) (\d+)".*?>(.*?)</svg>', text)
    assert len(drawings) == text.count('<svg class="broad"') == 4
    for width, height, inner in drawings:
        assert int(width) <= 400 - 2 * 16
        for x, y, anchor, what in re.findall(
                r'<text class="[^"]+" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)', inner):
            reach = len(unescape(what)) * charts.LETTER * 0.9
            before, after = {"start": (0, reach), "middle": (reach / 2, reach / 2), "end": (reach, 0)}[anchor]
            assert float(y) <= int(height) and float(x) + after <= int(width), what
            assert float(x) - before >= 0 or "rotate" in inner, what
    cells = re.findall(r"<td[^>]*>", text)
    assert cells and all("data-head=" in cell for cell in cells)


def test_long_names_of_bars_are_slanted_where_they_do_not_fit():
    names = ["1 ms – 10 ms", "10 ms – 100 ms", "100 ms – 1 s", "1 s – 10 s", "10 s – 1 min", "1 min – 10 min"]
    drawn = charts.bars(names, [1, 2, 3, 4, 5, 6], str, "x")
    broad, narrow = drawn.split("</svg>")[:2]
    assert broad.count("rotate(-40") == 0 and narrow.count("rotate(-40") == 6


@pytest.mark.parametrize("top, ticks", [
    (0, [0, 1]), (1, [0, .2, .4, .6, .8, 1]), (7, [0, 2, 4, 6, 8]), (100, [0, 20, 40, 60, 80, 100]),
    (99_999, [0, 20_000, 40_000, 60_000, 80_000, 100_000]), (0.003, [0, .001, .002, .003]),
])
def test_scales_are_round_and_reach_the_top(top, ticks):
    assert charts.scale(top) == pytest.approx(ticks)


@pytest.mark.parametrize("top", [1.1, 3, 13, 37, 512, 1e9, 0.07])
def test_scales_have_a_few_ticks(top):
    ticks = charts.scale(top)
    assert 4 <= len(ticks) <= 7 and ticks[-2] < top <= ticks[-1]


@pytest.mark.parametrize("span, width", [(0, 1), (90, 1), (96, 5), (86400, 1800), (86400 * 90, 86400), (86400 * 3650, 86400 * 42)])
def test_a_report_has_at_most_96_buckets(span, width):
    assert page.bucket_width(span) == width
    assert span / width <= 95


@pytest.mark.parametrize("value, told", [(0, "0"), (2e-5, "20 µs"), (0.0125, "12.5 ms"), (59, "59 s"), (90, "1.5 min"),
                                         (7200, "2 h"), (200_000, "2.31 d"), (-3, "-3 s")])
def test_durations_are_told_in_their_largest_unit(value, told):
    assert page.span(value) == told


# ---------------------------------------------------------------------- lines of JSON


def test_lines_are_counted_where_a_file_is_read_in_parts(tmp_path):
    """A part of a file begins with the first line that starts after its first byte."""
    path = tmp_path / "a b.json"
    lines = [b'{"n": %d}' % number for number in range(100)]
    lines[70] = b"{"
    path.write_bytes(b"\n".join(lines) + b"\n")
    start = path.read_bytes().index(b"50}")     # within line 51
    uri = path.as_uri()
    batch = (pa.array(lines[51:]), pa.array([uri] * 49), pa.array([start] * 49))
    with pytest.raises(json_lines.BadLine, match=r"/a b\.json, line 71: not JSON: .*: \{; --skip-bad skips such lines"):
        list(json_lines.check(iter([batch]), False, False))
    (skipped,) = json_lines.check(iter([batch]), True, False)
    assert skipped.null_count == 1 and len(skipped) == 49
    elsewhere = (pa.array([b"{"]), pa.array(["s3a://b/x.json"]), pa.array([10]))
    with pytest.raises(json_lines.BadLine, match=r"s3a://b/x\.json, line 1 of those after byte 10"):
        list(json_lines.check(iter([elsewhere]), False, False))
