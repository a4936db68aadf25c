"""The commands beside serve: help, usage errors, and `nsqc config`."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nsqc.commands import COMMANDS, SERVERS
from nsqc.commands.app import describe
from nsqc.commands.pages.manpage import man_page
from nsqc.options.declared import FLAGS, KEYS, SERVE, Options
from nsqc.options.flags import parse_flags
from nsqc.options.option import Kind
from nsqc.options.resolve import resolve
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import openssl, self_signed

ROOT = Path(__file__).resolve().parent.parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
GROUPS = list(dict.fromkeys(one.group for one in COMMANDS))


@pytest.fixture
def config(tmp_path):
    """config(*lines): the path of a file with these lines; HERE in them stands for an existing folder."""
    def write(*lines: str) -> Path:
        path = tmp_path / "nsqc.cfg"
        path.write_text("".join(f"{line}\n" for line in lines).replace("HERE", str(tmp_path)))
        return path

    return write


# ---------------------------------------------------------------------- help and usage


def test_without_arguments_it_tells_all_commands_by_group(nsqc):
    code, told, errors = nsqc()
    assert (code, errors) == (0, "")
    assert nsqc("--help") == nsqc("-h") == (0, told, "")
    groups = re.findall(r"^(\S.*):$", told, re.MULTILINE)
    assert groups[-len(GROUPS):] == GROUPS
    assert re.findall(r"^  ([a-z][a-z-]*) ", told, re.MULTILINE) == [one.name for one in COMMANDS]


def test_every_command_has_a_module_and_every_module_is_a_command():
    modules = {path.stem for path in (ROOT / "nsqc/commands").glob("*.py")} - {
        "__init__", "app", "output", "start", "tools", "typed"}
    assert modules == {one.name for one in COMMANDS if not one.tool} - SERVERS.keys()


@pytest.mark.parametrize("words", [[one.name] for one in COMMANDS if one.name not in SERVERS] + [
    ["config", "check"], ["config", "show"], ["config", "init"]])
def test_every_command_has_help(nsqc, words):
    code, told, errors = nsqc(*words, "--help")
    assert (code, errors) == (0, "")
    assert told.startswith(f"Usage: nsqc {' '.join(words)} ")


@pytest.mark.parametrize("words, complaint", [
    (["nope"], "nsqc: No such command 'nope'"),
    (["serv"], "Did you mean 'serve'?"),
    (["--nope"], "nsqc: No such option: --nope"),
    (["config"], "nsqc config: Missing command"),
    (["config", "nope"], "nsqc config: No such command 'nope'"),
    (["config", "check"], "nsqc config check: Missing argument 'FILE'"),
    (["config", "check", "a", "b"], "unexpected extra argument"),
    (["config", "init", "--nope"], "No such option: --nope"),
    (["config", "show", "--nope"], "unknown flag: '--nope'"),
    (["config", "show", "more"], "unexpected argument: 'more'"),
    (["config", "show", "--max-rdy-count=x"], "invalid value for flag --max-rdy-count"),
    (["completion"], "nsqc completion: Missing argument 'SHELL'"),
    (["completion", "csh"], "'csh' is not one of 'bash', 'zsh', 'fish'"),
    (["man", "x"], "unexpected extra argument"),
    (["version", "x"], "unexpected extra argument"),
])
def test_words_that_cannot_be_understood_leave_with_2_and_one_line(nsqc, words, complaint):
    code, told, errors = nsqc(*words)
    assert (code, told) == (2, "")
    line, = errors.splitlines()
    assert complaint in line


def test_as_a_process_it_leaves_with_the_same_codes(tmp_path):
    for words, code in ((["config", "nope"], 2), (["config", "check", "none.cfg"], 1), ([], 0)):
        done = subprocess.run([sys.executable, "-m", "nsqc", *words], capture_output=True, timeout=WAIT_SECONDS, env=ENV,
                              cwd=tmp_path)
        assert done.returncode == code, done.stderr


def test_help_loads_no_command_and_nothing_heavy():
    code = ("import sys; sys.argv = ['nsqc', '--help']\n"
            "from nsqc.cli import main\n"
            "try: main()\n"
            "except SystemExit: pass\n"
            "print(sorted(m for m in sys.modules if m.startswith('nsqc.')), {'rich', 'asyncio'} & sys.modules.keys())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS, env=ENV)
    assert done.stdout.splitlines()[-1] == "['nsqc.cli', 'nsqc.commands', 'nsqc.commands.app', 'nsqc.commands.output'] set()"


def test_pages_are_printed(nsqc):
    assert nsqc("man") == (0, man_page(describe()), "")
    for shell in ("bash", "zsh", "fish"):
        code, script, errors = nsqc("completion", shell)
        assert (code, errors) == (0, "") and f"_NSQC_COMPLETE=complete_{shell}" in script


# ---------------------------------------------------------------------- config check


def test_a_good_file_is_ok(nsqc, config, tmp_path):
    path = config('data_path = "HERE"', "mem_queue_size = 5")
    assert nsqc("config", "check", path) == (0, f"{path}: ok, 2 options; data path {tmp_path} is writable\n", "")
    path = config("mem_queue_size = 5")
    assert nsqc("config", "check", path)[1].startswith(f"{path}: ok, 1 option; no data path set")


def test_an_unknown_key_is_a_warning(nsqc, config):
    path = config("mem_queue_size = 5", "graphite = 5", "[collectd]", 'mem_queue_size = "x"')
    code, told, _ = nsqc("config", "check", path)
    assert code == 0
    assert told.splitlines()[:2] == [f"{path}:2: warning: unknown key 'graphite' is ignored",
                                     f"{path}:3: warning: unknown key 'collectd' is ignored"]
    assert f"{path}: ok, 1 option" in told


@pytest.mark.parametrize("line, complaint", [
    ("mem_queue_sise = 5", "unknown key 'mem_queue_sise', did you mean mem_queue_size?"),
    ("max_rdy_count = true", "max_rdy_count = True cannot be used - expected a number, not true or false"),
    ('"max_rdy_count" = 1.5', "max_rdy_count = 1.5 cannot be used"),
    ("max_rdy_count.x = 1", "not a table"),
    ("[max_rdy_count]", "not a table"),
    ("id = 1024", "id must be at most 1023, not 1024"),
    ("  sync_timeout = 0", "sync_timeout must be at least 1ns, not 0s"),
    ("e2e_processing_latency_percentiles = [2.0]", "percentiles must be above 0 and at most 1, not 2.0"),
    ('auth_http_request_method = "put"', "auth_http_request_method must be post or get"),
    ('tcp_address = "127.0.0.1:x"', "tcp_address: address 127.0.0.1:x: invalid port"),
    ('http_address = "/nowhere/http.sock"', "folder /nowhere does not exist"),
    ('https_address = "HERE/nsqc.cfg"', "nsqc.cfg exists and is not a unix socket"),
    ('nsqlookupd_tcp_addresses = ["a:4160", "b"]', "address b: missing port"),
    ('auth_http_addresses = ["ftp://a"]', "'ftp://a' is neither HOST:PORT nor"),
    ('statsd_address = "a:b"', "statsd_address: address a:b: invalid port"),
    ('data_path = "/nowhere"', "data_path: folder /nowhere does not exist"),
    ('data_path = "HERE/nsqc.cfg"', "nsqc.cfg is not a folder"),
    ("tls_required = true", "cannot require TLS client connections without TLS key and cert"),
    ('tls_client_auth_policy = "some"', "tls_client_auth_policy is require or require-verify, not some"),
    ('tls_cert = "/none.pem"', "tls_cert is given without tls_key"),
    ('tls_key = "/none.key"', "tls_key is given without tls_cert"),
    ('tcp_address = "localhost"', "tcp_address: address localhost: missing port"),
    ('http_address = "4151"', "http_address: address 4151: missing port"),
    ('statsd_address = "localhost"', "statsd_address: address localhost: missing port"),
    ('tcp_address = "nsqd.example.com"', "missing port in address (./nsqd.example.com is the path of a unix socket)"),
    ('tcp_address = "0.0.0.0:65536"', "tcp_address: address 0.0.0.0:65536: invalid port"),
    ('tcp_address = "0.0.0.0:"', "invalid port"),
    ('tcp_address = "my host:4150"', "tcp_address: address my host:4150: invalid host"),
    ('http_address = "10.0.0.256:4151"', "http_address: address 10.0.0.256:4151: invalid host"),
    ('http_address = "0.0.0.0:4150"', "http_address: address 0.0.0.0:4150 is that of tcp_address"),
    ('nsqlookupd_tcp_addresses = ["http://a:4160"]', "address http://a:4160: invalid host"),
    ('statsd_address = "a:0"', "statsd_address: address a:0: invalid port"),
    ('auth_http_addresses = ["a:0"]', "'a:0' is neither HOST:PORT nor"),
    ('auth_http_addresses = ["not a url"]', "'not a url' is neither HOST:PORT nor"),
    ('broadcast_tcp_port = 65536', "broadcast_tcp_port must be at most 65535, not 65536"),
    ('auth_http_addresses = ["http:/a/auth"]', "'http:/a/auth' is neither HOST:PORT nor"),
    ('mem_queue_size = ', "Invalid value"),
    ("log_prefix = 5", "expected a string, not a number"),
])
def test_what_is_wrong_is_told_with_its_line(nsqc, config, line, complaint):
    before = ['log_level = "warn"', "# here it comes"]
    code, told, errors = nsqc("config", "check", path := config(*before, line))
    assert (code, errors) == (1, "")
    one, = told.splitlines()
    assert one.startswith(f"{path}:3: error: ")
    assert complaint in one


def test_everything_wrong_is_told_by_line(nsqc, config):
    path = config("id = -1", "graphite = 1", 'msg_timeout = "soon"', "max_rdy_count = -1", 'data_path = "/nowhere"')
    code, told, _ = nsqc("config", "check", path)
    assert code == 1
    assert [line.removeprefix(str(path)).split(": ")[:2] for line in told.splitlines()] == [
        [":1", "error"], [":2", "warning"], [":3", "error"], [":4", "error"], [":5", "error"]]


@pytest.mark.parametrize("before", [
    ['log_prefix = """', "id = 5000", '"""'], ["auth_http_addresses = [", "#", "id = 5000]", "]"], ["#id = 5000"],
])
def test_the_line_is_the_keys_and_no_other_that_looks_like_it(nsqc, config, before):
    text = [line for line in before if line != "id = 5000]"]
    code, told, _ = nsqc("config", "check", path := config(*text, "id = 5000"))
    assert (code, told) == (1, f"{path}:{len(text) + 1}: error: id must be at most 1023, not 5000\n")


@pytest.mark.parametrize("content, complaint", [
    (None, "No such file"), (b'log_prefix = "\xff"', "utf-8"), (b"a = [", "end of document"),
    (b"id = 1\nid = 2\n", ":2: error: "),
])
def test_a_file_that_cannot_be_read_is_told(nsqc, tmp_path, content, complaint):
    path = tmp_path / "odd.cfg"
    if content is not None:
        path.write_bytes(content)
    code, told, _ = nsqc("config", "check", path)
    assert (code, len(told.splitlines())) == (1, 1)
    assert complaint in told


def test_certificates_are_read(nsqc, config, tmp_path):
    for name in ("one", "other"):
        self_signed(tmp_path, name, "localhost")
    cert = ['tls_cert = "HERE/one.pem"']
    assert nsqc("config", "check", config(*cert, 'tls_key = "HERE/one.key"'))[0] == 0
    code, told, _ = nsqc("config", "check", path := config(*cert, 'tls_key = "HERE/other.key"'))
    assert code == 1
    assert told.startswith(f"{path}:1: error: failed to build TLS config")
    assert "other.key is not the key of" in told
    (tmp_path / "empty.pem").touch()
    code, told, _ = nsqc("config", "check", path := config(*cert, 'tls_key = "HERE/one.key"',
                                                           'tls_root_ca_file = "HERE/empty.pem"'))
    assert code == 1
    assert told.startswith(f"{path}:3: error: failed to build TLS config")


def test_a_certificate_or_key_that_is_none_is_named(nsqc, config, tmp_path):
    self_signed(tmp_path, "one", "localhost")
    openssl("rsa", "-aes128", "-passout", "pass:x", "-in", tmp_path / "one.key", "-out", tmp_path / "locked.key")
    whole = (tmp_path / "one.pem").read_bytes()
    (tmp_path / "half.pem").write_bytes(whole[:len(whole) // 2])
    for cert, key, line, complaint in (
            ("half.pem", "one.key", 1, "half.pem has no readable certificate"),
            ("one.key", "one.key", 1, "one.key has no readable certificate"),
            ("one.pem", "one.pem", 1, "one.pem has no readable private key"),
            ("one.pem", "half.pem", 2, "half.pem has no readable private key"),
            ("one.pem", "locked.key", 2, "locked.key is encrypted; nsqc cannot ask for its password: store it unencrypted"),
            ("none.pem", "one.key", 1, "none.pem: No such file or directory")):
        path = config(f'tls_cert = "HERE/{cert}"', f'tls_key = "HERE/{key}"')
        code, told, _ = nsqc("config", "check", path)
        assert (code, told.startswith(f"{path}:{line}: error: failed to build TLS config - ")) == (1, True), told
        assert told.endswith(complaint + "\n")


def test_what_has_no_effect_is_a_warning(nsqc, config):
    code, told, _ = nsqc("config", "check", path := config('tls_root_ca_file = "HERE/ca.pem"'))
    assert code == 0
    assert told.startswith(f"{path}:1: warning: tls_root_ca_file has no effect without tls_cert and tls_key\n")


def test_show_refuses_what_a_start_would(nsqc):
    assert nsqc("config", "show", "--lookupd-tcp-address=a") == (
        1, "", "nsqc config: --lookupd-tcp-address: address a: missing port in address\n")


def test_a_folder_that_may_not_be_written_is_told(nsqc, config, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may run this, and has write access everywhere
    code, told, _ = nsqc("config", "check", path := config('data_path = "HERE"'))
    assert (code, told) == (1, f"{path}:1: error: data_path: folder {path.parent} cannot be read and written\n")


def test_what_it_accepts_starts_and_what_it_refuses_does_not(nsqc, config, daemon, tmp_path):
    path = config("mem_queue_size = 7", 'log_prefix = "[y] "', "graphite = 5")
    assert nsqc("config", "check", path)[0] == 0
    assert daemon(f"--config={path}").http("GET", "/config/mem_queue_size") == (200, b"7")
    for line in ("id = 1024", "mem_queue_sise = 7", "tls_required = true"):
        path = config(line, f'data_path = "{tmp_path}"')
        assert nsqc("config", "check", path)[0] == 1
        done = subprocess.run([sys.executable, "-m", "nsqc", "serve", "--tcp-address=127.0.0.1:0",
                               f"--config={path}"], capture_output=True, timeout=WAIT_SECONDS, env=ENV)
        assert done.returncode == 1


@pytest.mark.parametrize("line, complaint", [
    ('tcp_address = "localhost"', "1: error: tcp_address: address localhost: missing port in address"),
    ('http_address = "HERE/sock"', "1: error: http_address: address HERE/sock: missing port in address"),
    ('http_address = "1.2.3:5"', "1: error: http_address: address 1.2.3:5: invalid host"),
    ('http_address = "0.0.0.0:4160"', "1: error: http_address: address 0.0.0.0:4160 is that of tcp_address"),
    ('tombstone_lifetime = "soon"', "1: error: tombstone_lifetime = 'soon' cannot be used"),
    ('tombstone_lifetime = "-1s"', "1: error: tombstone_lifetime must be at least 0s, not -1s"),
    ('log_formt = "json"', "1: error: unknown key 'log_formt', did you mean log_format?"),
    ('mem_queue_size = 5', "1: warning: unknown key 'mem_queue_size' is ignored"),
    ('http-address = ":5"', "1: warning: unknown key 'http-address' is ignored, did you mean http_address?"),
    ('x =', "1: error: Invalid value"),
])
def test_files_of_the_lookup_server(nsqc, config, tmp_path, line, complaint):
    path = config(line)
    code, told, errors = nsqc("config", "check", "--lookupd", path)
    assert (code, errors) == (0 if "warning" in complaint else 1, "")
    assert told.startswith(f"{path}:{complaint.replace('HERE', str(tmp_path))}")


def test_a_good_file_of_the_lookup_server(nsqc, config):
    path = config('tcp_address = "127.0.0.1:4160"', 'log_format = "json"')
    assert nsqc("config", "check", "--lookupd", path) == (0, f"{path}: ok, 2 options\n", "")
    assert nsqc("config", "check", "--lookupd", "none.cfg")[0] == 1
    # The starter file is valid.
    assert nsqc("config", "init", "--lookupd", path, "--force")[0] == 0
    assert nsqc("config", "check", "--lookupd", path)[:2] == (0, f"{path}: ok, 0 options\n")


def test_values_of_the_lookup_server(nsqc, config):
    path = config('tombstone_lifetime = "90s"', "other = 1")
    code, told, errors = nsqc("config", "show", "--lookupd", "--json", f"--config={path}", "--log-level", "warn")
    assert (code, errors) == (0, "nsqc config: warning: unknown key 'other' is ignored\n")
    shown = json.loads(told)
    assert shown["tombstone_lifetime"] == {"value": "1m30s", "from": "config file"}
    assert shown["log_level"] == {"value": "warn", "from": "flag"}
    assert shown["http_address"] == {"value": "0.0.0.0:4161", "from": "default"}
    assert "  tombstone_lifetime" in nsqc("config", "show", "--lookupd")[1]
    assert "nsqc lookupd --help lists all flags" in nsqc("config", "show", "--lookupd", "--mem-queue-size=1")[2]
    assert nsqc("config", "show", "--lookupd", "-h")[1].startswith("Usage: nsqc config show --lookupd [--json] [FLAGS]")


def test_the_config_of_an_admin_server(nsqc, tmp_path):
    path = str(tmp_path / "admin.cfg")
    Path(path).write_text('http_address = "nope"\nnsqd_http_addresses = ["x"]\nprometheus_url = "p"\nread_only = 3\n'
                          'http_client_tls_root_ca_file = "/nope/ca"\nnode_auth_secret = "@/nope/secret"\naccess_file = "/nope/access"\n'
                          'allow_config_from_cidr = "foo"\ndev_static_dir = "/nope/page"\n')
    code, told, errors = nsqc("config", "check", "--admin", path)
    assert (code, errors) == (1, "")
    for text in (":1: error: http_address: address nope: missing port", ":2: error: failed to resolve nsqd_http_addresses (x)",
                 ":3: error: prometheus_url=p: is not an http or https URL", ":4: error: read_only = 3 cannot be used",
                 ":8: error: failed to parse allow_config_from_cidr (foo)", "failed to read /nope/ca",
                 "failed to read /nope/secret", "access file /nope/access", "failed to read the page"):
        assert text in told, (text, told)
    # A start without a node fails, so a file without one is invalid, unless flags name it.
    assert nsqc("config", "init", "--admin", path, "--force")[0] == 0
    code, told, _ = nsqc("config", "check", "--admin", path)
    assert code == 1 and "required" in told
    Path(path).write_text('nsqd_http_addresses = ["127.0.0.1:4151"]\npoll_interval = "2s"\n')
    assert nsqc("config", "check", "--admin", path) == (0, f"{path}: ok, 2 options\n", "")
    code, told, _ = nsqc("config", "show", "--admin", "--json", f"--config={path}", "--read-only")
    shown = json.loads(told)
    assert (code, shown["poll_interval"], shown["read_only"]["from"]) == (0, {"value": "2s", "from": "config file"}, "flag")
    assert nsqc("config", "check", "--admin", "--lookupd", path)[0] == 2



def test_an_experiment_without_a_place_is_a_warning(nsqc, config):
    path = config('enable_experiment = ["topology-aware-consumption"]')
    code, told, _ = nsqc("config", "check", path)
    assert code == 0
    assert told.startswith(f"{path}:1: warning: enable_experiment has no effect without topology_zone and topology_region")
    path = config("mem_queue_size = 5", 'enable_experiment = ["warp"]')
    code, told, _ = nsqc("config", "check", path)
    assert (code, told) == (1, f"{path}:2: error: enable_experiment must be topology-aware-consumption, not 'warp'\n")


# ---------------------------------------------------------------------- config show


def test_show_tells_values_and_where_they_come_from(nsqc, config):
    path = config("mem_queue_size = 7", 'msg_timeout = "5s"', "max_rdy_count = 8", "graphite = 1")
    words = [f"--config={path}", "--max-rdy-count", "9", "-http-address=", "--tls-required=false"]
    code, told, errors = nsqc("config", "show", *words)
    assert (code, errors) == (0, "nsqc config: warning: unknown key 'graphite' is ignored\n")
    rows = {row.split()[0]: row.split()[1:] for row in told.splitlines() if row.startswith("  ")}
    assert rows["mem_queue_size"] == ["7", "config", "file"]
    assert rows["msg_timeout"] == ["5s", "config", "file"]
    assert rows["max_rdy_count"] == ["9", "flag"]
    assert rows["http_address"] == ['""', "flag"]
    assert rows["tls_required"] == ["false", "flag"]
    assert rows["sync_every"] == ["2500", "default"]
    assert list(rows) == list(KEYS)


def test_show_as_json_can_be_read_back(nsqc, config):
    path = config("mem_queue_size = 7", 'tls_required = "tcp-https"', 'tls_cert = "x"', 'tls_key = "y"')
    code, told, _ = nsqc("config", "show", "--config", path, "--json", "--lookupd-tcp-address=a:1,b:2",
                         "--log-level=debug")
    assert code == 0
    found = json.loads(told)
    assert found["mem_queue_size"] == {"value": 7, "from": "config file"}
    assert found["nsqlookupd_tcp_addresses"] == {"value": ["a:1", "b:2"], "from": "flag"}
    assert found["log_level"] == {"value": "debug", "from": "flag"}
    assert found["tls_required"] == {"value": "tcp-https", "from": "config file"}
    assert found["msg_timeout"] == {"value": "1m0s", "from": "default"}
    again = config(*(f"{key} = {json.dumps(one['value'])}" for key, one in found.items()))
    flags = ["--lookupd-tcp-address=a:1,b:2", "--log-level=debug", "--mem-queue-size=7", "--tls-required=tcp-https",
             "--tls-cert=x", "--tls-key=y"]
    assert resolve(SERVE, parse_flags([f"--config={again}"]))[0].replace(config="") == resolve(SERVE, parse_flags(flags))[0]


def test_show_tells_what_a_daemon_has_in_force(nsqc, daemon):
    flags = ["--max-rdy-count=9", "--msg-timeout=5s", "--snappy=false"]
    found = json.loads(nsqc("config", "show", "--json", *flags)[1])
    node = daemon(*flags)
    for key, name in KEYS.items():
        if FLAGS[name].kind in (Kind.INT, Kind.BOOL, Kind.TEXTS, Kind.FLOATS):
            assert json.loads(node.http("GET", f"/config/{key}")[1]) == found[key]["value"]


def test_show_tells_what_follows_from_another_option(nsqc):
    words = ["--tls-cert=x", "--tls-key=y", "--tls-client-auth-policy=require", "--json"]
    assert json.loads(nsqc("config", "show", *words)[1])["tls_required"] == {"value": True,
                                                                           "from": "tls_client_auth_policy"}


@pytest.mark.parametrize("words, complaint", [
    (["--node-id=5000"], "--node-id must be at most 1023"), (["--config=/none.cfg"], "/none.cfg"),
    (["--tls-required"], "cannot require TLS"),
])
def test_show_refuses_what_serve_refuses(nsqc, words, complaint):
    code, told, errors = nsqc("config", "show", *words)
    assert (code, told) == (1, "")
    line, = errors.splitlines()
    assert complaint in line


def test_show_helps_in_gos_way_too(nsqc):
    code, told, _ = nsqc("config", "show", "-h")
    assert code == 0
    assert told.startswith("Usage: nsqc config show [--json] [FLAGS]")
    assert "--mem-queue-size" in told


# ---------------------------------------------------------------------- config init


def test_init_prints_every_option_commented_out(nsqc):
    code, told, errors = nsqc("config", "init")
    assert (code, errors) == (0, "")
    assert tomllib.loads(told) == {}
    assert re.findall(r"^#(\w+) = ", told, re.MULTILINE) == list(KEYS)
    assert max(map(len, told.splitlines())) <= 120
    assert '# Suggested: tls_min_version = "tls1.2"; ' in told


def test_init_uncommented_gives_the_defaults(nsqc, tmp_path):
    path = tmp_path / "new.cfg"
    assert nsqc("config", "init", path) == (0, f"{path} written\n", "")
    path.write_text(re.sub(r"^#(?=\w+ = )", "", path.read_text(), flags=re.MULTILINE))
    code, told, _ = nsqc("config", "check", path)
    assert code == 0
    assert told.startswith(f"{path}: ok, {len(KEYS)} options")
    assert resolve(SERVE, parse_flags([f"--config={path}"])) == (Options(config=str(path)), {})


def test_init_writes_over_nothing_unless_told(nsqc, tmp_path):
    path = tmp_path / "mine.cfg"
    path.write_text("mine")
    code, told, errors = nsqc("config", "init", path)
    assert (code, told) == (1, "")
    assert errors == f"nsqc config: {path} exists, --force overwrites it\n"
    assert path.read_text() == "mine"
    assert nsqc("config", "init", "--force", path)[0] == 0
    assert path.read_text().startswith("# Options of nsqc")


def test_init_tells_where_it_cannot_write(nsqc, tmp_path):
    code, _, errors = nsqc("config", "init", tmp_path / "no" / "new.cfg")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "No such file or directory" in errors
