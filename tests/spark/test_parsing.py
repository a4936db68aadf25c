"""Bodies as columns: nsqc.spark.json, .text and .headers.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import pytest
from pyspark.sql.types import DoubleType, StructType

import nsqc.spark
from nsqc.client import with_headers
from nsqc.client.envelope import parted
from tests.spark.conftest import address
from tests.support.daemon import wait_until

SCHEMA = "price double, customer string"
# Body, its parsed value, whether it is bad.
BODIES = [
    (b'{"price": 2.5, "customer": "x"}', (2.5, "x"), False),
    (b'{"customer": "x"}', (None, "x"), False),
    (b"{}", (None, None), False),
    (b'{"price": "dear", "customer": "x"}', (None, "x"), True),
    (b'{"price": 2.5, ', (None, None), True),
    (b'[{"price": 2.5}]', (None, None), True),
    (b"7", (None, None), True),
    (b"null", (None, None), True),
    (b" ", (None, None), True),
    (b"", (None, None), True),
    (b"\xff\x00", (None, None), True),
]


def frame_of(spark, bodies):
    return spark.createDataFrame([(number, bytearray(body)) for number, body in enumerate(bodies)],
                                 "number int, value binary")


@pytest.mark.parametrize("schema", [SCHEMA, f"struct<{SCHEMA.replace(' ', ':').replace(',:', ',')}>",
                                    StructType().add("price", DoubleType()).add("customer", "string")])
def test_json_becomes_columns_and_what_does_not_fit_stays_visible(spark, schema):
    parsed = nsqc.spark.json(frame_of(spark, [body for body, _, _ in BODIES]), schema)
    assert parsed.columns == ["number", "value", "price", "customer", "bad"]
    rows = parsed.orderBy("number").collect()
    assert [bytes(row.value) for row in rows] == [body for body, _, _ in BODIES]
    assert [((row.price, row.customer), row.bad) for row in rows] == [(fields, bad) for _, fields, bad in BODIES]
    # For any selection of columns.
    assert parsed.where("bad").count() == parsed.where("bad").select("customer").count() == sum(
        bad for _, _, bad in BODIES)


def test_text(spark):
    frame = nsqc.spark.text(frame_of(spark, ["grün".encode(), b"a\xffb", b""]))
    assert dict(frame.dtypes)["value"] == "string"
    assert [row.value for row in frame.orderBy("number").collect()] == ["grün", "a�b", ""]
    # Text can be parsed, too.
    assert nsqc.spark.json(nsqc.spark.text(frame_of(spark, [b'{"a": 1}'])), "a int").first().a == 1


HEADED = [
    with_headers(b'{"a": 1}', {"content-type": "application/json", "note": "a: grün"}), with_headers(b"\xff\n\nx", {"note": "x"}),
    with_headers(b"", {"note": ""}), with_headers(b"x", {}), b'{"a": 1}', b"a: b\n\nx", b"NSQ-Headers/1\n", b"NSQ-Headers/1\na: b\nx",
    b"NSQ-Headers/1\nno colon\n\nx", b"NSQ-Headers/1\na: b\na: c\n\nx", b"NSQ-Headers/1\na: b\rc: d\n\nx", b"NSQ-Headers/1\n" + b"\n" * 9,
    b"NSQ-Headers/1\n" + b"".join(b"%d: x\n" % number for number in range(20_000)) + b"\nx"]


def test_headers(spark):
    """The same as in the client, whatever a body has; json() skips them."""
    found = nsqc.spark.headers(frame_of(spark, HEADED))
    assert found.columns == ["number", "value", "headers"]
    for row in found.collect():
        assert (row.headers or {}, bytes(row.value)) == parted(HEADED[row.number]), HEADED[row.number][:50]
    text = nsqc.spark.headers(nsqc.spark.text(frame_of(spark, HEADED[:1]))).first()
    assert (text.headers["note"], text.value) == ("a: grün", '{"a": 1}')
    rows = nsqc.spark.json(frame_of(spark, HEADED), "a int").orderBy("number").collect()
    assert [(row.a, row.bad) for row in rows[:5]] == [(1, False), (None, True), (None, True), (None, True), (1, False)]
    assert bytes(rows[0].value) == HEADED[0]
    with pytest.raises(ValueError, match="already has a column headers"):
        nsqc.spark.headers(nsqc.spark.headers(frame_of(spark, HEADED)))


@pytest.mark.parametrize("schema, complaint", [
    ("NUMBER int", r"already has columns number: drop or rename them first"),
    ("a int, bad string", "uses the name of the column bad"),
    ("array<int>", r"the schema is array<int>; it must list columns"),
    ("a nothing", "nothing"),
])
def test_a_schema_that_cannot_be(spark, schema, complaint):
    with pytest.raises(Exception, match=complaint):
        nsqc.spark.json(frame_of(spark, [b"{}"]), schema)


def test_a_frame_without_bodies(spark):
    for call in (nsqc.spark.text, lambda frame: nsqc.spark.json(frame, SCHEMA)):
        with pytest.raises(ValueError, match="needs a column value, binary or string; it has id"):
            call(spark.range(1))


def test_a_stream_of_a_log(spark, log_node, topic, tmp_path):
    log_node.connect().pub(topic, b'{"price": 1}', b"no", b'{"price": 3}')
    stream = (spark.readStream.format("nsq").option("topic", topic).option("nsqd", address(log_node))
              .option("http", f"127.0.0.1:{log_node.http_port}").option("startingOffsets", "earliest").load())
    found = []
    query = (nsqc.spark.json(stream, "price double").writeStream
             .foreachBatch(lambda frame, _: found.extend(frame.select("offset", "price", "bad").collect()))
             .option("checkpointLocation", f"file://{tmp_path}/checkpoint").trigger(availableNow=True).start())
    wait_until(lambda: not query.isActive, "the query to end")
    assert query.exception() is None
    assert sorted(map(tuple, found)) == [(0, 1.0, False), (1, None, True), (2, 3.0, False)]
