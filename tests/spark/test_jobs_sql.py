"""The job sql, and archives in other file systems. Slow: each run plans and commits batches, and starts Python workers."""

import json
from pathlib import Path

import pytest

from nsqc.client import with_headers
from tests.publishing.support import remember
from tests.spark.conftest import depth
from tests.spark.test_jobs_logs import bodies_of, where
from tests.support.ports import free_port

SELECT = """-- dear orders, with what they cost
SELECT id, price * 2 AS twice, date_format(timestamp, 'yyyy') AS year
FROM `{topic}` WHERE NOT bad AND price >= 10;
"""
SCHEMA = "--schema=id bigint, price double"


def orders(node, topic: str, numbers: range) -> None:
    """Every third one has headers."""
    bodies = [b'{"id": %d, "price": %d}' % (number, number % 20) for number in numbers]
    node.connect().pub(topic, *(body if at % 3 else with_headers(body, {"content-type": "application/json"})
                                for at, body in enumerate(bodies)), b"not JSON")


def forget_last_commit(checkpoint: Path) -> None:
    """As if Spark had been killed between a batch and its commit."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def lake(spark, tmp_path):
    """The URI of a file system that only Spark knows, for a folder here: (uri, folder)."""
    folder = tmp_path / "lake"
    folder.mkdir()
    name = f"lake{abs(hash(str(tmp_path)))}"
    spark.sparkContext._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{folder}")
    return f"viewfs://{name}/data", folder


def test_a_query_into_a_topic_publishes_each_row_once(job, spark, log_node, topic, tmp_path):
    query = tmp_path / "dear.sql"
    query.write_text(SELECT.format(topic=topic))
    remember(log_node, f"{topic}-dear", storage="log")
    log_node.post(f"/topic/create?topic={topic}-dear")
    orders(log_node, topic, range(100))
    words = [query, f"--topic={topic}", f"--to-topic={topic}-dear", f"--checkpoint={tmp_path}/check", SCHEMA,
             "--until-idle", "--batch-rows=60", *where(log_node)]
    assert job("sql", *words) == f"read 101 messages; published 50 to {topic}-dear\n"
    rows = [json.loads(body) for body in bodies_of(log_node, f"{topic}-dear")]
    assert sorted((row["id"], row["twice"]) for row in rows) == [
        (number, 2.0 * (number % 20)) for number in range(100) if number % 20 >= 10]
    assert {tuple(row) for row in rows} == {("id", "twice", "year")}
    words[0] = write(tmp_path, f"SELECT VALUE FROM `{topic}` WHERE bad;")
    assert job("sql", *changed(words, **{"--checkpoint": f"{tmp_path}/other"})) == f"read 101 messages; published 1 to {topic}-dear\n"
    assert bodies_of(log_node, f"{topic}-dear")[-1] == b"not JSON"
    words[0] = write(tmp_path, f"SELECT value, topic FROM `{topic}`")
    assert "the query has the column topic beside value" in job("sql", *words, code=1)
    words[0] = query
    forget_last_commit(tmp_path / "check")
    orders(log_node, topic, range(100, 120))
    job("sql", *words)
    assert depth(log_node, f"{topic}-dear") == 61
    assert log_node.stats(f"{topic}-dear")["deduplicated"] > 0


def test_a_query_into_files_writes_each_row_once(job, spark, log_node, topic, lake, tmp_path):
    uri, folder = lake
    query = tmp_path / "dear.sql"
    query.write_text(SELECT.format(topic=topic))
    orders(log_node, topic, range(100))
    words = [query, f"--topic={topic}", f"--to-files={uri}/dear", SCHEMA, "--partition-by=year", "--until-idle",
             *where(log_node)]
    assert job("sql", *words) == f"read 101 messages into {uri}/dear\n"
    forget_last_commit(folder / "dear" / "_checkpoint")
    orders(log_node, topic, range(100, 120))
    job("sql", *words)
    rows = spark.read.parquet(f"{uri}/dear").collect()
    assert sorted(row.id for row in rows) == [number for number in range(120) if number % 20 >= 10]
    assert list((folder / "dear").glob("year=*/*.parquet"))
    assert "--schema: bad is already a column: read such a field in the query" in job(
        "sql", *changed(words, **{"--to-files": f"{uri}/x", "--schema": "id bigint, bad string"}), code=1)
    assert "reads none of the topics" in job("sql", write(tmp_path, "SELECT 1 AS value"), *words[1:], code=1)
    assert "--partition-by: the query has no column y" in job(
        "sql", *changed(words, **{"--to-files": f"{uri}/x", "--partition-by": "y"}), code=1)
    for scheme, text in (("s3a", "lacks the package org.apache.hadoop:hadoop-aws:3."),
                         ("nowhere", "no file system for nowhere")):
        assert text in job("sql", *changed(words, **{"--to-files": f"{scheme}://x/y"}), code=1)


def changed(words: list, **values: str) -> list[str]:
    """Words with other values of these options."""
    return [f"{name}={values[name]}" if (name := str(word).partition("=")[0]) in values else str(word) for word in words]


def write(folder: Path, text: str) -> Path:
    path = folder / "other.sql"
    path.write_text(text)
    return path


def test_the_first_run_needs_all_nodes(job, spark, log_node, topic, lake, tmp_path):
    """A stream would wait for them, and show nothing."""
    orders(log_node, topic, range(10))
    gone = f"127.0.0.1:{free_port()}"
    both = [f"{word},{gone}" for word in where(log_node)]
    words = ["sql", write(tmp_path, f"SELECT value FROM `{topic}`"), f"--topic={topic}", f"--to-files={lake[0]}/all"]
    for one in words, ["archive", f"{lake[0]}/archive", f"--topic={topic}", "--create"]:
        assert "Connection refused: the first run needs all nsqd" in job(*one, *both, code=1).splitlines()[-1]
    assert "--until-idle needs all nsqd" in job(*words, *both, "--until-idle", code=1)


def test_an_archive_in_another_file_system(job, spark, log_node, topic, lake):
    uri, folder = lake
    orders(log_node, topic, range(100))
    words = [f"{uri}/archive", f"--topic={topic}", "--until-idle", *where(log_node)]
    assert "is not an archive: --create creates one there" in job("archive", *words, code=1)
    assert job("archive", *words, "--create") == "archived 101 messages\n"
    orders(log_node, topic, range(100, 120))
    assert job("archive", *words) == "archived 21 messages\n"
    assert spark.read.parquet(f"{uri}/archive").selectExpr("count(distinct offset)").collect()[0][0] == 122
    (day,) = (folder / "archive").glob("date=*")
    again = f"{topic}-again"
    assert "give --topic" in job("replay", f"{uri}/archive", *where(log_node), code=1)
    job("replay", f"{uri}/archive", f"--topic={again}", "--create", *where(log_node))
    assert bodies_of(log_node, again) == bodies_of(log_node, topic)
    job("replay", f"{uri}/archive", f"--topic={again}", f"--to={day.name[5:]}", *where(log_node))
    assert depth(log_node, again) == 122
    assert "is not an archive" in job("replay", f"{uri}/other", f"--topic={again}", *where(log_node), code=1)
