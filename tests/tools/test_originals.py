"""NSQ's tools by their own names: flags, output, errors, exit codes."""

import gzip
import re
import signal
import subprocess

import pytest

from nsqc import __version__
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import self_signed
from tests.tools.conftest import ENV, Tool
from tests.tools.test_to_http import Server

NAMES = ("nsq_tail", "nsq_stat", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq")
STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d "


@pytest.fixture
def original(links, tools):
    """original(name, *words): to its end; original.start(...): in the background."""
    def run(name, *words, input=b""):
        return subprocess.run([links(name), *words], input=input, capture_output=True, timeout=WAIT_SECONDS, env=ENV, cwd=tools.folder)

    def start(name, *words):
        tools.running.append(Tool([links(name), *words], tools.folder, cwd=tools.folder))
        return tools.running[-1]

    run.start = start
    return run


@pytest.mark.parametrize("name", NAMES)
def test_help_and_version(inside, name):
    done = inside(name, "-help")
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert lines[0] == f"Usage of {name}:"
    flags = [line.split()[0] for line in lines if line.startswith("  -")]
    assert flags == sorted(flags) and len(flags) > 4
    done = inside(name, "--version")
    assert (done.returncode, done.stdout) == ((2, "") if name == "to_nsq" else (0, f"{name} v1.3.0\n"))


@pytest.mark.parametrize("name, words, code, text", [
    ("nsq_tail", ["-bogus"], 2, "flag provided but not defined: -bogus\nUsage of nsq_tail:\n"),
    ("nsq_tail", ["--n=x"], 2, 'invalid value "x" for flag -n: parse error\n'),
    ("nsq_tail", ["-n"], 2, "flag needs an argument: -n\n"),
    ("nsq_tail", ["--print-topic=maybe"], 2, 'invalid boolean value "maybe" for -print-topic: parse error\n'),
    ("nsq_tail", ["--consumer-opt=bogus,1"], 2, 'invalid value "bogus,1" for flag -consumer-opt: invalid option bogus\n'),
    ("nsq_tail", ["--consumer-opt=sample_rate,200"], 2, "invalid sample_rate ! 200 > 99\n"),
    ("nsq_tail", ["--consumer-opt=msg_timeout,1500"], 2,
     'failed to coerce option msg_timeout (1500) - time: missing unit in duration "1500"\n'),
    ("nsq_tail", ["--consumer-opt=local_addr,1"], 2, "option local_addr is not supported by nsqc\n"),
    ("nsq_stat", ["--count=x"], 2, 'strconv.ParseInt: parsing "x": invalid syntax\n'),
    ("nsq_tail", [], 1, "--nsqd-tcp-address or --lookupd-http-address required\n"),
    ("nsq_tail", ["--nsqd-tcp-address=a:1", "--lookupd-http-address=a:1"], 1, "use --nsqd-tcp-address or --lookupd-http-address not both\n"),
    ("nsq_tail", ["--nsqd-tcp-address=a:1"], 1, "--topic required\n"),
    ("nsq_tail", ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x"], 1, "dial tcp 127.0.0.1:1: connect: connection refused\n"),
    ("nsq_tail", ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x y"], 1, "invalid topic name\n"),
    ("nsq_to_file", ["--nsqd-tcp-address=a:1", "--topic=x", "--output-dir=dbfs:/x"], 1,
     "--output-dir: dbfs:/x is not a local path; give the path where that file system is mounted\n"),
    ("nsq_to_file", ["--nsqd-tcp-address=a:1", "--topic=x", "--work-dir=s3a://bucket/x"], 1,
     "--work-dir: s3a://bucket/x is not a local path; give the path where that file system is mounted\n"),
    ("to_nsq", [], 1, "--topic required\n"), ("to_nsq", ["-topic=x", "-delimiter="], 1, "--delimiter must be a single byte\n"),
    ("to_nsq", ["-topic=x"], 1, "--nsqd-tcp-address required\n"),
    ("nsq_stat", [], 1, "--topic and --channel are required\n"),
    ("nsq_stat", ["--topic=x", "--channel=c", "--interval=0"], 1, "--interval should be positive\n"),
    ("nsq_stat", ["--topic=x", "--channel=c", "--nsqd-http-address=http://a"], 1,
     "--nsqd-http-address error - address should not contain scheme\n"),
    ("nsq_to_http", ["--header=x"], 1, "--header value format should be 'key=value'\n"),
    ("nsq_to_http", ["--topic=x", "--nsqd-tcp-address=a:1"], 1, "--get or --post required\n"),
    ("nsq_to_http", ["--topic=x", "--nsqd-tcp-address=a:1", "--get=http://a/"], 1, "invalid GET address - must be a printf string\n"),
    ("nsq_to_http", ["--topic=x", "--nsqd-tcp-address=a:1", "--post=http://a/", "--n=0"], 1, "no handlers\n"),
    ("nsq_to_nsq", [], 1, "--topic and --channel are required\n"), ("nsq_to_nsq", ["--topic=x y"], 1, "--topic is invalid\n"),
    ("nsq_to_nsq", ["--topic=x", "--nsqd-tcp-address=a:1"], 1, "--destination-nsqd-tcp-address required\n"),
    ("nsq_to_file", ["extra"], 1, "unknown arguments: [extra]\n"), ("nsq_to_file", [], 1, "--lookupd-http-address required.\n"),
    ("nsq_to_file", ["--nsqd-tcp-address=a:1", "--gzip-level=10"], 1, "invalid --gzip-level value (10), should be 1-9\n"),
    ("nsq_to_file", ["--nsqd-tcp-address=a:1"], 1, "--topic or --topic-pattern required\n"),
    ("nsq_to_file", ["--nsqd-tcp-address=a:1", "--topic=x", "--gzip", "--filename-format=f"], 1,
     "missing <REV> in --filename-format when gzip, rotation, or work dir enabled\n")])
def test_errors(inside, name, words, code, text):
    done = inside(name, *words)
    told = done.stderr
    assert (done.returncode, done.stdout) == (code, "") and text in told
    if code == 1:
        assert all(re.match(STAMP, line) for line in told.splitlines())


def test_lines_there_and_back(original, tools):
    topic = tools.topic("c")
    done = original("to_nsq", "-topic", topic, f"-nsqd-tcp-address={tools.tcp}", "-delimiter", ";", input=b"a;;b\n;last")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = original("nsq_tail", "--topic", topic, "--channel=c", "--nsqd-tcp-address", tools.tcp, "--n=3", "--print-topic")
    assert (done.returncode, done.stdout.decode()) == (0, f"{topic} | a\n{topic} | b\n\n{topic} | last\n")
    assert re.fullmatch(STAMP + f"Adding consumer for topic: {topic}\n", done.stderr.decode())


def test_to_nsq_with_nobody_there(original):
    assert original("to_nsq", "-topic=x", "-nsqd-tcp-address=127.0.0.1:1").returncode == 0
    done = original("to_nsq", "-topic=x", "-nsqd-tcp-address=127.0.0.1:1", input=b"a\n")
    assert done.returncode == 1 and "dial tcp 127.0.0.1:1: connect: connection refused\n" in done.stderr.decode()
    done = original("to_nsq", "-topic=x", "-rate=5", "-nsqd-tcp-address=127.0.0.1:1")
    assert "Throttling messages rate to max:5/second\n" in done.stderr.decode()


def test_nsq_stat(original, tools):
    topic = tools.topic("c")
    tools.publish(topic, b"a")
    words = ("--topic", topic, "--nsqd-http-address", tools.http, "--interval=10ms", "--count=2")
    done = original("nsq_stat", "--channel=c", *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == (
        "------rate------+----------------depth----------------+--------------metadata---------------\n"
        "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n" +
        "      0       0 |       1       1       0     0     0 |       0       0            1       0\n" * 2)
    done = original("nsq_stat", "--channel=d", *words)
    assert done.returncode == 1
    assert f"ERROR: failed to find channel(d) in stats metadata for topic({topic})\n" in done.stderr.decode()


def test_nsq_to_file(original, tools, tmp_path):
    topic = tools.topic("nsq_to_file")
    tools.publish(topic, b"a", b"b")
    running = original.start("nsq_to_file", "--topic", topic, "--nsqd-tcp-address", tools.tcp, f"--output-dir={tmp_path}/out", "--gzip",
                             "--sync-interval=50ms", "--filename-format=<TOPIC><REV>.<DATETIME>", "--datetime-format=Jan-02-%%")
    tools.drained(topic, "nsq_to_file")
    assert running.stop(signal.SIGINT) == 0
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == f"{topic}-000000.Jan-02-%.gz" and gzip.decompress(path.read_bytes()) == b"a\nb\n"
    first = running.err.splitlines()[0]
    assert re.fullmatch(r"\[nsq_to_file\] \S+ \S+\.\d{6} INFO: \[" + topic + r"/nsq_to_file\] .*", first)


def test_nsq_to_nsq(original, tools):
    topic, other = tools.topic("nsq_to_nsq"), tools.topic("c")
    tools.publish(topic, b'{"a":1}', b'{"b":1}', b"text")
    running = original.start("nsq_to_nsq", "--topic", topic, f"--nsqd-tcp-address={tools.tcp}", "--destination-topic", other,
                             f"--destination-nsqd-tcp-address={tools.tcp}", "--require-json-field=a", "--status-every=0")
    tools.drained(topic, "nsq_to_nsq")
    assert running.stop(signal.SIGTERM) == 0
    assert tools.taken(other, "c") == [b'{"a":1}']


def test_nsq_to_http(original, tools):
    topic, server = tools.topic("nsq_to_http"), Server()
    tools.publish(topic, *[b"%d" % number for number in range(205)])
    running = original.start("nsq_to_http", "--topic", topic, f"--nsqd-tcp-address={tools.tcp}", f"--post={server.url}/", "--status-every=100")
    tools.drained(topic, "nsq_to_http")
    running.says("[aggregate]: finished 100 - 99th: ")
    assert running.stop(signal.SIGTERM) == 0
    server.close()
    assert len(server.bodies) == 205
    assert server.requests[0][1]["User-Agent"] == "nsq_to_http v1.3.0"
    assert len(re.findall(STAMP + r"\[aggregate\]: finished 100 - 99th: \S+s - 95th: \S+s - avg: \S+s\n", running.err)) == 2


def test_a_lookup_server_that_is_down_is_waited_for(original, tools):
    running = original.start("nsq_tail", "--topic=x", "--lookupd-http-address=127.0.0.1:1").says("retrying later")
    assert running.process.poll() is None
    assert running.stop(signal.SIGINT) == 0
    wait_until(lambda: running.process.poll() is not None)


NO_EFFECT = "WRN    1 option {} has no effect in nsqc\n"
NEEDED = {
    "nsq_tail": ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x"], "to_nsq": ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x", "--rate=1"],
    "nsq_to_http": ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x", "--post=http://127.0.0.1:1/"],
    "nsq_to_nsq": ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x", "--destination-nsqd-tcp-address=127.0.0.1:2"],
    "nsq_to_file": ["--nsqd-tcp-address=127.0.0.1:1", "--topic=x", "--output-dir=."]}


@pytest.mark.parametrize("name, kind, option, has_effect", [
    ("nsq_tail", "consumer", "lookupd_poll_interval,1s", True), ("to_nsq", "producer", "lookupd_poll_interval,1s", False),
    ("nsq_to_http", "consumer", "max_attempts,3", True), ("nsq_to_nsq", "consumer", "max_attempts,3", False),
    ("nsq_to_file", "consumer", "max_attempts,0", True), ("nsq_tail", "consumer", "default_requeue_delay,1s", False),
    ("nsq_to_nsq", "consumer", "default_requeue_delay,1s", True), ("nsq_to_nsq", "producer", "max_requeue_delay,1s", False),
    ("nsq_to_http", "consumer", "backoff_strategy,full_jitter", True), ("nsq_tail", "consumer", "backoff_strategy,full_jitter", False),
    ("nsq_tail", "consumer", "backoff_strategy,exponential", True), ("nsq_to_http", "consumer", "max_backoff_duration,0s", True),
    ("nsq_to_http", "consumer", "backoff_multiplier,2s", True), ("nsq_tail", "consumer", "backoff_multiplier,2s", False),
    ("nsq_tail", "consumer", "lookupd_poll_timeout,1s", True), ("nsq_tail", "consumer", "tls_min_version,tls1.2", True),
    ("nsq_tail", "consumer", "skip_lookupd_authorization,false", True), ("nsq_to_file", "consumer", "skip-lookupd-authorization,0", True),
    *((name, "consumer", option, False) for name in ("nsq_tail", "nsq_to_http", "nsq_to_nsq", "nsq_to_file") for option in (
        "read_timeout,60s", "lookupd_poll_jitter,0.5", "low_rdy_idle_timeout,10s", "low-rdy-timeout,30s", "rdy_redistribute_interval,5s"))])
def test_options_of_the_client_that_a_tool_has_a_use_for(inside, monkeypatch, tmp_path, name, kind, option, has_effect):
    """Others only tune a client: a line says that they have no effect, and the tool starts."""
    monkeypatch.chdir(tmp_path)
    done = inside(name, *NEEDED[name], f"--{kind}-opt={option}")
    assert done.returncode == (0 if name == "to_nsq" else 1), done
    assert (NO_EFFECT.format(option.partition(",")[0].replace("-", "_")) in done.stderr) is not has_effect
    assert ("has no effect" in done.stderr) is not has_effect
    assert name == "to_nsq" or "dial tcp 127.0.0.1:1: connect: connection refused" in done.stderr


@pytest.mark.parametrize("option, text", [
    ("local_addr,127.0.0.1:1", "option local_addr is not supported by nsqc"),
    ("skip_lookupd_authorization", "option skip_lookupd_authorization is not supported by nsqc"),
    ("read_timeout,10m", "invalid read_timeout ! 10m > 5m0s"), ("lookupd_poll_jitter,2", "invalid lookupd_poll_jitter ! 2 > 1"),
    ("lookupd_poll_jitter,x", 'strconv.ParseFloat: parsing "x": invalid syntax'), ("backoff_strategy,x", "invalid backoff_strategy x"),
    ("tls_min_version,tls9", "invalid tls_min_version tls9, it is one of ssl3.0, tls1.0, tls1.1, tls1.2"),
    ("low_rdy_timeout,1ms", "invalid low_rdy_timeout ! 1ms < 1s")])
def test_options_of_the_client_that_are_refused(inside, option, text):
    done = inside("nsq_tail", f"--consumer-opt={option}")
    assert done.returncode == 2 and text in done.stderr


def test_options_of_the_client_arrive(original, tools):
    topic = tools.topic("c")
    options = ("client_id,me", "hostname,here", "heartbeat_interval,5s", "msg_timeout,90s", "sample_rate,99", "deflate", "deflate_level,2",
               "output_buffer_size,4096", "output_buffer_timeout,100ms", "dial_timeout,9s", "write_timeout,2s")
    running = original.start("nsq_tail", "--topic", topic, "--channel=c", f"--nsqd-tcp-address={tools.tcp}",
                             *[f"--consumer-opt={option}" for option in options])
    (client,) = wait_until(lambda: tools.node.channel(topic, "c")["clients"])
    assert (client["client_id"], client["hostname"], client["sample_rate"], client["deflate"], client["snappy"]) == ("me", "here", 99, True, False)
    assert client["user_agent"] == "nsq_tail/1.3.0 go-nsq/1.1.0"
    assert running.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("name, words", [
    ("nsq_to_http", ["--post=http://127.0.0.1:1/"]), ("nsq_to_nsq", ["--destination-nsqd-tcp-address=127.0.0.1:1"]),
    ("nsq_to_file", ["--output-dir=."]), ("tail", []), ("relay", ["--to", "127.0.0.1:1"]), ("to-file", []),
    ("to-http", ["--post", "http://127.0.0.1:1/"])])
def test_user_agents(original, tools, name, words):
    """In the form of NSQ's own tools."""
    topic = tools.topic("c")
    if name.startswith("nsq"):
        running = original.start(name, f"--topic={topic}", "--channel=c", f"--nsqd-tcp-address={tools.tcp}", *words)
    else:
        running = tools.start(name, topic, "--channel", "c", *words)
    (client, *_) = wait_until(lambda: tools.node.channel(topic, "c")["clients"], seconds=60)
    expected = f"{name}/1.3.0 go-nsq/1.1.0" if name.startswith("nsq") else f"nsqc-{name}/{__version__} go-nsq/1.1.0"
    assert client["user_agent"] == expected
    assert running.stop(signal.SIGTERM) == 0


def test_pauses_of_nsq_to_http(original, tools):
    """max_backoff_duration,0 is no back-off: many failures in a row follow each other at once."""
    topic, server = tools.topic("nsq_to_http"), Server()
    server.statuses = [500] * 60
    tools.publish(topic, *[b"x"] * 10)
    running = original.start("nsq_to_http", f"--topic={topic}", f"--nsqd-tcp-address={tools.tcp}", f"--post={server.url}/",
                             "--consumer-opt=max_backoff_duration,0s", "--consumer-opt=default_requeue_delay,1ms")
    # With pauses of 1, 2, 4 s and so on, and one message after each, this would take longer than a year.
    tools.drained(topic, "nsq_to_http")
    assert len(server.requests) == 70
    assert running.stop(signal.SIGTERM) == 0
    server.close()


def test_the_lowest_version_of_tls(original, daemon, tmp_path):
    self_signed(tmp_path, "server", "localhost")
    node = daemon(f"--tls-cert={tmp_path}/server.pem", f"--tls-key={tmp_path}/server.key")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/pub?topic=t", b"x")
    done = original("nsq_tail", "--topic=t", "--channel=c", "--n=1", f"--nsqd-tcp-address=127.0.0.1:{node.tcp_port}", "--consumer-opt=tls_v1",
                    "--consumer-opt=tls_insecure_skip_verify", "--consumer-opt=tls_min_version,tls1.2")
    assert (done.returncode, done.stdout) == (0, b"x\n")
