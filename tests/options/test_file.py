"""Config files, and flags over them."""

import tomllib

import pytest

from nsqc.options.check import examine
from nsqc.options.declared import FLAGS, KEYS, SERVE, OptionError, Options
from nsqc.options.file import read_config
from nsqc.options.flags import parse_flags
from nsqc.options.resolve import resolve
from tests.support import nested


def test_flags_win_over_the_file_and_the_file_over_defaults(config):
    path = config('max_rdy_count = 77\nmax_msg_size = 5000\nnsqlookupd_tcp_addresses = ["a:1"]\n')
    options, unknown = resolve(SERVE, parse_flags([f"--config={path}", "--max-msg-size=6000", "--lookupd-tcp-address=b:2"]))
    assert (options.max_rdy_count, options.max_msg_size, options.mem_queue_size) == (77, 6000, 10000)
    assert options.lookupd_tcp_address == ("b:2",)
    assert unknown == {}
    assert resolve(SERVE, parse_flags([f"--config={path}", "--instance=2"]))[0].tcp_address == "0.0.0.0:4350"


@pytest.mark.parametrize("line, name, value", [
    ('msg_timeout = "2500ms"', "msg_timeout", 2500 * 10**6),
    ("msg_timeout = 2500", "msg_timeout", 2500 * 10**6),
    ("id = 9", "node_id", 9),
    ('id = "9"', "node_id", 9),
    ("deflate = false", "deflate", False),
    ('deflate = "false"', "deflate", False),
    ('log_level = "Warn"', "log_level", 3),
    ('nsqlookupd_tcp_addresses = ["a:1", "b:2"]', "lookupd_tcp_address", ("a:1", "b:2")),
    ('nsqlookupd_tcp_addresses = "a:1,b:2"', "lookupd_tcp_address", ("a:1", "b:2")),
    ('auth_http_addresses = ["http://a/?x=1,2"]', "auth_http_address", ("http://a/?x=1,2",)),
    ("nsqlookupd_tcp_addresses = []", "lookupd_tcp_address", ()),
    ("e2e_processing_latency_percentiles = [0.5, 1]", "e2e_processing_latency_percentile", (0.5, 1.0)),
    ('e2e_processing_latency_percentiles = "0.5, 0.9"', "e2e_processing_latency_percentile", (0.5, 0.9)),
    ("e2e_processing_latency_percentiles = 0.5", "e2e_processing_latency_percentile", (0.5,)),
    ("tls_required = true", "tls_required", 2),
    ("tls_required = 0", "tls_required", 0),
    ('tls_required = "tcp-https"', "tls_required", 1),
    ('tls_min_version = "tls1.3"', "tls_min_version", 0x304),
    ('tls_min_version = ""', "tls_min_version", 0x301),
    ('tls_cert = ""', "tls_cert", ""),
    ('output_buffer_flush = "timeout"', "output_buffer_flush", "timeout"),
])
def test_values(config, line, name, value):
    assert read_config(config(line + "\n")) == ({name: value}, {})


@pytest.mark.parametrize("text, complaint", [
    ("this is no = = toml\n", "failed to load config file .*nsqd.cfg"),
    ('log_level = "loud"\n', "log_level = 'loud'"),
    ("log_level = 2\n", "log_level = 2"),
    ('msg_timeout = "soon"\n', "msg_timeout = 'soon'"),
    ("msg_timeout = 1.5\n", "msg_timeout = 1.5"),
    ("msg_timeout = 9223372036854775807\n", "more milliseconds than"),
    ('tls_required = "perhaps"\n', "tls_required = 'perhaps'"),
    ("max_msg_size = [1]\n", "not a list"),
    ("max_msg_size = 1.5\n", "max_msg_size = 1.5"),
    ("max_msg_size = 9223372036854775808\n", "max_msg_size"),
    ("data_path = 5\n", "not a number"),
    ("deflate = 1\n", "deflate = 1 .* not a number"),
    ("max_rdy_count = true\n", "not true or false"),
    ("max_rdy_count = 2026-01-31\n", "not a date"),
    ("[mem_queue_size]\nx = 1\n", "not a table"),
    ("nsqlookupd_tcp_addresses = [1]\n", "a list of text is expected"),
    ('nsqlookupd_tcp_addresses = [["a:1"]]\n', "a list of text is expected"),
    ("nsqlookupd_tcp_addresses = 1\n", "not a number"),
    ("e2e_processing_latency_percentiles = [true]\n", "a list of numbers is expected"),
    ("e2e_processing_latency_percentiles = nan\n", "not a number"),
    ('output_buffer_flush = "never"\n', "output_buffer_flush"),
    ("x = " + nested.ARRAYS.decode(), "failed to load config file .*nested too deeply"),
])
def test_values_of_the_wrong_kind_name_file_and_key(config, text, complaint):
    path = config(text)
    with pytest.raises(OptionError, match=complaint) as told:
        read_config(path)
    assert path in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("key, meant", [
    ("mem_queue_sise", "mem_queue_size"), ("Max_Msg_Size", "max_msg_size"), ("Log_Level", "log_level"),
    ("node_id", "id"), ("lookupd_tcp_address", "nsqlookupd_tcp_addresses"), ("max_message_size", "max_msg_size"),
    ("nsqlookupd_http_addresses", "nsqlookupd_tcp_addresses"),
])
def test_a_slip_is_refused_with_the_likely_key(config, key, meant):
    with pytest.raises(OptionError, match=f"unknown key '{key}', did you mean {meant}\\?"):
        read_config(config(f"{key} = 5\n"))


def test_keys_of_other_tools_and_releases_are_passed_over_and_told(config):
    path = config('unknown_option = 1\nverbose = true\nworker_id = 5\nclient_timeout = "1m"\nversion = true\n'
                  'nsqlookupd_tcp_addresses = ["a:1"]\nnsqlookupd_http_addresses = ["a:2"]\n[graphite]\nurl = "x"\n')
    found, unknown = read_config(path)
    assert found == {"lookupd_tcp_address": ("a:1",)}
    assert list(unknown) == ["unknown_option", "verbose", "worker_id", "client_timeout", "version",
                             "nsqlookupd_http_addresses", "graphite"]
    assert unknown["verbose"] == "unknown key 'verbose' is ignored"


@pytest.mark.parametrize("key, meant", [
    ("log-level", "log_level"), ("log-levle", "log_level"), ("node-id", "id"), ("lookupd-tcp-address", "nsqlookupd_tcp_addresses"),
    ("no-such-thing", "")])
def test_keys_with_dashes_are_passed_over_as_by_nsqd(config, key, meant):
    """nsq's example files of 1.1 and 1.2 have log-level, which nsqd has never read."""
    found, unknown = read_config(config(f'{key} = "debug"\nmax_msg_size = 5\n'))
    assert found == {"max_msg_size": 5}
    assert unknown == {key: f"unknown key '{key}' is ignored" + (f", did you mean {meant}?" if meant else "")}


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    path = tmp_path / "nsqd.cfg"
    path.write_bytes(b"\xef\xbb\xbfmax_msg_size = 5\nother = 1\n")
    assert read_config(str(path)) == ({"max_msg_size": 5}, {"other": "unknown key 'other' is ignored"})
    assert [finding.line for finding in examine(str(path)).findings] == [2]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"none\.cfg - No such file"):
        read_config(str(tmp_path / "none.cfg"))
    with pytest.raises(OptionError, match="Is a directory"):
        read_config(str(tmp_path))
    (tmp_path / "latin").write_bytes(b'data_path = "\xe9"\n')
    with pytest.raises(OptionError, match="latin"):
        read_config(str(tmp_path / "latin"))


def test_every_key_is_read_in_the_form_that_config_answers_it(config):
    defaults = Options()
    for key, name in KEYS.items():
        value = defaults.by_config_name(key)
        if name in ("log_level", "tls_min_version") or FLAGS[name].kind.name == "DURATION":
            continue  # files have these as names and text
        text = {str: f'"{value}"', bool: str(value).lower(), int: str(value), list: "[]"}[type(value)]
        assert tomllib.loads(f"{key} = {text}")[key] == value
        assert read_config(config(f"{key} = {text}\n")) == ({name: getattr(defaults, name)}, {})
