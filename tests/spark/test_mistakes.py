"""Invalid options, through a real Spark: each error names the option, and nothing is retried.

Slow: each query or job starts Python workers; the first one waits for Java.
"""


from tests.access.files import AccessFile
from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
from tests.spark.conftest import address
from tests.spark.test_log import why

authd = factory(AuthServer)
LOG = "--topic-storage=log"
# With such waits and retries, an error that arrives was not retried.
FOREVER = {"failWhenUnreachable": "10000000"}
ALWAYS = {"retries": "1000", "backoff": "3600"}


def http_of(*daemons) -> str:
    return ",".join(f"127.0.0.1:{one.http_port}" for one in daemons)


def read(spark, **options: str) -> None:
    spark.read.format("nsq").options(topic="t", **FOREVER, **options).load().collect()


def stream(spark, folder, **options: str) -> None:
    (spark.readStream.format("nsq").options(topic="t", **FOREVER, **options).load().writeStream.format("noop")
     .option("checkpointLocation", str(folder / "check")).start().awaitTermination())


def consume(spark, folder, **options: str) -> None:
    stream(spark, folder, channel="c", stagingDir=str(folder / "stage"), **options)


def write(spark, **options: str) -> None:
    (spark.range(1, numPartitions=1).selectExpr("cast(id as string) as value").write.format("nsq").mode("append")
     .options(topic="t", **ALWAYS, **options).save())


def test_wrong_names_and_values_are_refused_at_load(spark):
    def load(kind: str, **options: str) -> str:
        return why(lambda: spark.read.format(kind).options(**options).load())
    given = {"nsqd": "127.0.0.1:1", "topic": "t"}
    assert load("nsq", **given, maxOffsetPerTriger="5") == (
        "nsq: unknown option maxOffsetPerTriger: did you mean maxOffsetsPerTrigger?")
    assert load("nsq", **given, startingOffsets="soon").startswith("nsq: option startingOffsets=soon: must be earliest, latest")
    assert load("nsq_diskqueue", path="/x", rang="all") == "nsq_diskqueue: unknown option rang: did you mean range?"
    assert load("nsq_diskqueue", path="/x", range="some").startswith("nsq_diskqueue: option range=some: must be")
    assert load("nsq_diskqueue", path="/nowhere") == "nsq_diskqueue: option path=/nowhere does not exist"
    assert why(lambda: spark.readStream.format("nsq").options(**given, chanel="c").load()) == (
        "nsq: unknown option chanel: did you mean channel?")


def test_tables_of_the_catalog_say_why_they_cannot_be(spark, nsqd):
    options = f"OPTIONS (topic 't', nsqd '{address(nsqd)}')"
    says = "no options given. If this is a table of CREATE TABLE or saveAsTable: Spark does not pass its options"
    assert says in why(lambda: spark.sql(f"CREATE TABLE no_columns USING nsq {options}"))
    spark.sql(f"CREATE TABLE with_columns (value binary) USING nsq {options}")
    try:
        assert says in why(lambda: spark.sql("SELECT * FROM with_columns").collect())
        assert says in why(lambda: spark.sql("INSERT INTO with_columns VALUES (CAST('x' AS BINARY))"))
    finally:
        spark.sql("DROP TABLE with_columns")


def test_a_frame_is_not_saved_as_a_table(spark, nsqd, tmp_path):
    """Refused before anything is published, each time; save() works also within a batch of a stream."""
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    for mode in ("append", "errorifexists", "append"):
        assert "Use save() instead of saveAsTable(); nothing was published" in why(
            lambda mode=mode: frame.write.format("nsq").mode(mode).options(topic="saved", nsqd=address(nsqd)).saveAsTable("saved"))
        assert not spark.catalog.tableExists("saved")
    assert not [topic for topic in nsqd.stats()["topics"] if topic["topic_name"] == "saved"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\n")
    query = spark.readStream.text(str(tmp_path / "in")).writeStream.option("checkpointLocation", str(tmp_path / "state")).foreachBatch(
        lambda batch, number: batch.write.format("nsq").mode("append").options(topic="batches", nsqd=address(nsqd)).save())
    query.trigger(availableNow=True).start().awaitTermination()
    assert nsqd.stats("batches")["depth"] == 2


def test_a_missing_or_wrong_secret_names_the_option(spark, daemon, authd, tmp_path):
    server = authd()
    one = daemon(LOG, f"--auth-http-address={server.address}")
    where = {"nsqd": address(one)}
    for name, work in (("sink", lambda **more: write(spark, **where, **more)),
                       ("channel", lambda **more: consume(spark, tmp_path, **where, **more))):
        assert why(work).endswith("give option authSecret"), name


def test_a_missing_or_wrong_token_for_a_log_names_the_option(spark, daemon, tmp_path):
    access = AccessFile(tmp_path / "access.toml")
    access.user("other", publish=["*"])
    access.write()
    one = daemon(LOG, f"--access-file={access.path}")
    where = {"nsqd": address(one), "http": http_of(one)}
    assert "give option authSecret" in why(lambda: read(spark, **where))
    for token in ("wrong", access.tokens["other"]):
        assert "option authSecret does not permit it" in why(lambda token=token: read(spark, **where, authSecret=token))
    assert "give option authSecret" in why(lambda: stream(spark, tmp_path, **where))


def test_a_wrong_port_names_the_right_one(spark, nsqd, log_node, lookupd, tmp_path):
    tcp, http, look = address(log_node), http_of(log_node), lookupd(log_node)
    right = f"{http} is the HTTP port of an nsqd: give its TCP port, nsqd={tcp}"
    assert right in why(lambda: read(spark, nsqd=http))
    assert right in why(lambda: stream(spark, tmp_path, nsqd=http))
    assert right in why(lambda: write(spark, nsqd=http))
    assert right in why(lambda: consume(spark, tmp_path, nsqd=http))
    assert f"nsqlookupd: give it as nsqlookupd={look}" in why(lambda: read(spark, nsqd=look))
    assert f"{tcp} is the TCP port of an nsqd: give it as nsqd={tcp}" in why(lambda: read(spark, nsqlookupd=tcp))
    assert f"is the HTTP port of an nsqd: give nsqlookupd's, or nsqd={tcp}" in why(lambda: read(spark, nsqlookupd=http))
    assert "option http has HTTP addresses" in why(lambda: read(spark, nsqd=tcp, http=tcp))


def test_tls_that_is_not_offered_is_not_tried_again(spark, log_node, tmp_path):
    tcp, http = address(log_node), http_of(log_node)
    says = "nsqd does not offer tls: omit tls=true"
    assert says in why(lambda: write(spark, nsqd=tcp, tls="true"))
    assert says in why(lambda: consume(spark, tmp_path, nsqd=tcp, tls="true"))
    assert "does not speak TLS: omit tls=true" in why(lambda: read(spark, nsqd=tcp, http=http, tls="true"))


