"""Options in environment variables: below flags, above the config file."""

import json
import os
import subprocess
import sys

import pytest

from nsqc.options.declared import SERVE
from nsqc.options.flags import from_environment, show, variable
from nsqc.options.option import FlagError
from nsqc.options.servers import LOOKUPD
from tests.support.lookupd import COMMAND as LOOKUPD_COMMAND
from tests.support.lookupd import LookupServer
from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS

ENV = {name: value for name, value in os.environ.items() if not name.startswith("NSQC_")} | {"PYTHONPATH": str(ROOT)}


def shown(tmp_path, environment, *words):
    """`nsqc config show --json`: value and source by key."""
    done = subprocess.run([sys.executable, "-m", "nsqc", "config", "show", "--json", *words], env=ENV | environment,
                          cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    return {key: (one["value"], one["from"]) for key, one in json.loads(done.stdout).items()}


@pytest.mark.parametrize("declaration", [SERVE, LOOKUPD], ids=["serve", "lookupd"])
def test_every_option_has_a_variable(declaration):
    defaults = declaration.options()
    names = [name for name in declaration.flags if name != "version"]
    written = {variable(name): show(declaration.flags[name].kind, defaults.value(name)) for name in names}
    # Only a list without items can be written as an empty text.
    written = {name: text for name, text in written.items() if text or "percentile" not in name.lower()}
    values = from_environment(declaration, written)
    assert {variable(name) for name in values} == written.keys()
    assert all(value == defaults.value(name) for name, value in values.items())


def test_flags_win_and_the_config_file_loses(tmp_path):
    (tmp_path / "cfg").write_text("max_rdy_count = 1\nmem_queue_size = 1\nmax_topics = 1\n")
    found = shown(tmp_path, {"NSQC_CONFIG": "cfg", "NSQC_MAX_RDY_COUNT": "2", "NSQC_MEM_QUEUE_SIZE": "2",
                             "NSQC_LOOKUPD_TCP_ADDRESS": "a:1,b:2"}, "--max-rdy-count=3")
    assert found["max_rdy_count"] == (3, "flag")
    assert found["mem_queue_size"] == (2, "environment")
    assert found["max_topics"] == (1, "config file")
    assert found["nsqlookupd_tcp_addresses"] == (["a:1", "b:2"], "environment")
    assert found["sync_every"] == (2500, "default")
    assert shown(tmp_path, {"NSQC_TOMBSTONE_LIFETIME": "1s"}, "--lookupd")["tombstone_lifetime"] == ("1s", "environment")


@pytest.mark.parametrize("environment, error", [
    ({"NSQC_MEM_QUEU_SIZE": "1"}, "environment variable NSQC_MEM_QUEU_SIZE is not an option of nsqc serve; "
                                  "did you mean NSQC_MEM_QUEUE_SIZE?"),
    ({"NSQC_ZZZ": "1"}, "environment variable NSQC_ZZZ is not an option of nsqc serve; unset it"),
    ({"NSQC_TOMBSTONE_LIFETIME": "1s"}, "environment variable NSQC_TOMBSTONE_LIFETIME is not an option of nsqc serve"),
    ({"NSQC_MSG_TIMEOUT": "1"}, "invalid value in environment variable NSQC_MSG_TIMEOUT: '1' is not a duration"),
    ({"NSQC_max_rdy_count": "1"}, "environment variable NSQC_max_rdy_count is not an option"),
])
def test_what_stops_the_start(environment, error, tmp_path):
    done = subprocess.run([sys.executable, "-m", "nsqc", "serve"], env=ENV | environment, cwd=tmp_path, capture_output=True,
                          text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 2 and done.stderr.startswith(f"nsqc serve: {error}")


def test_what_others_set_is_ignored():
    """Kubernetes' variables of services named nsqc and nsqc-lookupd, and names with another purpose."""
    links = {"NSQC_SERVICE_HOST": "10.0.0.1", "NSQC_SERVICE_PORT": "4150", "NSQC_SERVICE_PORT_TCP": "4150",
             "NSQC_PORT": "tcp://10.0.0.1:4150", "NSQC_PORT_4150_TCP": "tcp://10.0.0.1:4150",
             "NSQC_PORT_4150_TCP_PROTO": "tcp", "NSQC_PORT_4150_TCP_PORT": "4150", "NSQC_PORT_4150_TCP_ADDR": "10.0.0.1",
             "NSQC_LOOKUPD_SERVICE_HOST": "10.0.0.2", "NSQC_LOOKUPD_PORT": "tcp://10.0.0.2:4160",
             "NSQC_LOOKUPD_PORT_4160_TCP_ADDR": "10.0.0.2"}
    others = {"NSQC_VERSION": "0.1.0", "NSQC_AUTH_SECRET": "x", "NSQC_TEST_ANY": "x", "PATH": "/bin"}
    assert from_environment(SERVE, links | others) == {}
    assert from_environment(SERVE, links | {"NSQC_BROADCAST_TCP_PORT": "7"}) == {"broadcast_tcp_port": 7}


def test_an_instruction_is_not_an_option():
    with pytest.raises(FlagError):
        from_environment(SERVE, {"NSQC_HELP": "true"})


def test_a_daemon_a_reload_and_a_tool(daemon, tmp_path):
    """A reload keeps environment values over a changed file; the tools find the daemon by them."""
    config = tmp_path / "cfg"
    config.write_text("max_rdy_count = 1\nmsg_timeout = '1m'\n")
    node = daemon(env=ENV | {"NSQC_CONFIG": str(config), "NSQC_MAX_RDY_COUNT": "77"})
    assert node.http("GET", "/config/max_rdy_count") == (200, b"77")
    config.write_text("max_rdy_count = 2\nmsg_timeout = '2m'\n")
    node.process.send_signal(1)
    from tests.support.daemon import wait_until

    wait_until(lambda: "RELOAD: 1 options changed" in node.log, "the reload")
    assert node.http("GET", "/config/max_rdy_count") == (200, b"77")
    done = subprocess.run([sys.executable, "-m", "nsqc", "probe"], capture_output=True, text=True, timeout=WAIT_SECONDS,
                          env=ENV | {"NSQC_HTTP_ADDRESS": f"0.0.0.0:{node.http_port}"})
    assert (done.returncode, done.stdout) == (0, "OK\n")


def test_a_lookup_server(tmp_path):
    server = LookupServer(tmp_path / "log", command=LOOKUPD_COMMAND, env=ENV | {"NSQC_LOG_PREFIX": "[mine] "})
    try:
        assert "[mine] " in (tmp_path / "log").read_text()
    finally:
        server.close()
