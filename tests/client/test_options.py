"""Every client rejects invalid options on construction, before it connects."""

import pickle
import re
import ssl

import pytest

from nsqc import client
from nsqc.client import BadAddress, Connection, Consumer, Message, Producer, Worker, aio
from nsqc.client.handling import ConsumingOptions, Settings
from nsqc.client.options import CONNECTION
from nsqc.client.producer import OWN
from tests.support.pages import ROOT

NOBODY = "127.0.0.1:9"


def consumer(kind):
    return lambda *nsqd, **options: kind("t", "c", *nsqd, **options)


MAKERS = {"Producer": Producer, "aio.Producer": aio.Producer, "Consumer": consumer(Consumer),
          "aio.Consumer": consumer(aio.Consumer), "Worker": consumer(Worker), "aio.Worker": consumer(aio.Worker), "Connection": Connection}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("options,error,text", [
    ({"tlss": True}, TypeError, r"(Producer|Consumer|Worker|Connection) has no option 'tlss'; did you mean 'tls'\?$"),
    ({"tls_v1": True}, TypeError, "did you mean 'tls'"),
    ({"time_out": 1}, TypeError, "did you mean 'timeout'"),
    ({"heartbeat": 1}, TypeError, "did you mean 'heartbeat_interval_ms'"),
    ({"xyzzy": 1}, TypeError, "has no option 'xyzzy'$"),
    ({"tls": "yes"}, TypeError, "tls is 'yes'; it takes True, False, None or an ssl.SSLContext"),
    ({"deflate": True}, TypeError, "deflate is True"),
    ({"deflate": 10}, ValueError, "deflate is 10; it takes a level from 1 to 9, or 0"),
    ({"deflate": 1, "snappy": True}, ValueError, "exclude each other"),
    ({"timeout": 0}, ValueError, "timeout is 0; it takes seconds above 0"),
    ({"timeout": float("nan")}, ValueError, "timeout is nan"),
    ({"timeout": None}, TypeError, "timeout is None"),
    ({"sample_rate": 100}, ValueError, "sample_rate is 100"),
    ({"auth_secret": 1}, TypeError, "auth_secret is 1"),
    ({"topology_zone": 5}, TypeError, "topology_zone is 5"),
    ({"topology": "z"}, TypeError, "did you mean 'topology_"),
    ({"max_msg_size": "1"}, TypeError, "max_msg_size is '1'"),
])
def test_options(make, options, error, text):
    with pytest.raises(error, match=text):
        make(NOBODY, **options)


@pytest.mark.parametrize("make", [MAKERS[name] for name in MAKERS if name != "Connection"])
@pytest.mark.parametrize("options,error,text", [
    ({"backoff": -1}, ValueError, "backoff is -1"),
    ({"nsqlookup": NOBODY}, TypeError, "did you mean 'nsqlookupd'"),
    ({"nsqlookupd": NOBODY}, ValueError, "either nsqd or nsqlookupd"),
])
def test_options_of_both(make, options, error, text):
    with pytest.raises(error, match=text):
        make(NOBODY, **options)
    with pytest.raises(BadAddress):
        make(nsqlookupd=["127.0.0.1"])


@pytest.mark.parametrize("kind", [Producer, aio.Producer])
def test_options_of_producers(kind):
    for options, text in (({"retries": -1}, "retries is -1"), ({"retry": 1}, "did you mean 'retries'"), ({"spread": 1}, "spread is 1"),
                          ({"max_tries": 1}, "has no option 'max_tries'(?!.*max_attempts)")):
        with pytest.raises((ValueError, TypeError), match=text):
            kind(NOBODY, **options)


@pytest.mark.parametrize("kind", [Consumer, aio.Consumer, Worker, aio.Worker])
def test_options_of_consumers(kind):
    for options, text in (({"touch_limit": -1}, "touch_limit is -1"), ({"max_in_flight": 0}, "max_in_flight is 0"), ({"connections": 1.5}, "connections is 1.5"),
                          ({"poll_interval": 0}, "poll_interval is 0"), ({"max_in_fligth": 1}, "mean 'max_in_flight'"),
                          ({"lookupd_http_addresses": 1}, "did you mean 'nsqlookupd'")):
        with pytest.raises((ValueError, TypeError), match=text):
            kind("t", "c", NOBODY, **options)
    with pytest.raises(TypeError, match="a topic name is a str, not bytes"):
        kind(b"t", "c", NOBODY)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("wrong,text", [
    ("localhost", "'localhost' is not HOST:PORT: its port is missing, such as localhost:4150"), ("127.0.0.1:0", "not HOST:PORT"),
    ("127.0.0.1:port", "not HOST:PORT"), (":4150", "not HOST:PORT"), ("", "its port is missing"), ("a:65536", "not HOST:PORT"),
    ("http://127.0.0.1:4150", "omit the scheme"), ("a:4150,b:4150", "pass several addresses as a list"),
    ("a b:4150", "not HOST:PORT"), ("[::1:4150", "not HOST:PORT"), ("::g:4150", "not HOST:PORT"), ("127.0.0.1:٣", "not HOST:PORT"),
])
def test_addresses(make, wrong, text):
    with pytest.raises(BadAddress, match=text):
        make(wrong)


def test_addresses_that_are_fine():
    for fine in ("localhost:4150", "[::1]:4150", "::1:4150", "fe80::1%eth0:4150", "a_b-c.d:1", "/run/nsqd.sock", "münchen.de:1"):
        Producer(fine)
    for kind in (Producer, aio.Producer):
        with pytest.raises(TypeError, match="an address is HOST:PORT, a str, not int"):
            kind([4150])


@pytest.mark.parametrize("kind", [Worker, aio.Worker])
def test_names_of_pynsq(kind):
    for name, ours in (("max_tries", "max_attempts"), ("message_handler", "handler"), ("max_backoff_duration", "max_slowdown"),
                       ("lookupd_poll_interval", "poll_interval"), ("heartbeat_interval", "heartbeat_interval_ms")):
        with pytest.raises(TypeError, match=f"did you mean '{ours}'"):
            kind("t", "c", NOBODY, **{name: 1})


def test_errors_survive_pickling():
    for error in (client.Refused("a:1", "E_BAD_TOPIC no"), client.AuthError("a:1", "E_AUTH_FAILED"), client.BadMessage(3, "is empty"),
                  client.ConnectError("a:1: gone"), client.PublishFailed("given up", 3, 2, 1)):
        found = pickle.loads(pickle.dumps(error))
        assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_a_context_that_cannot_be_made(monkeypatch):
    monkeypatch.setattr(ssl, "create_default_context", lambda: 1 / 0)
    Producer(NOBODY, tls=True)      # when it connects, not earlier


def listed(heading: str) -> set[str]:
    """The names in the first column of the table below a heading of docs/client.md."""
    text = (ROOT / "docs/client.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {name for cell in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)}


def test_the_page_lists_every_option_and_attribute():
    assert listed("Options") == {*OWN, *CONNECTION, *Settings._fields, *ConsumingOptions.__annotations__, "handler"}
    assert listed("Messages") == {name for name in dir(Message) if not name.startswith("_")}
