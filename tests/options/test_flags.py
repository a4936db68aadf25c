"""Flags in the grammar of Go's flag package, and the help."""

import pytest

from nsqc.options.declared import FLAGS, flag_name
from nsqc.options.flags import describe, help_text, parse_flags
from nsqc.options.option import FlagError, HelpWanted

ORIGINAL = [
    "version", "config", "log-level", "log-prefix", "verbose", "node-id", "worker-id", "https-address",
    "http-address", "tcp-address", "auth-http-address", "broadcast-address", "broadcast-tcp-port",
    "broadcast-http-port", "lookupd-tcp-address", "http-client-connect-timeout", "http-client-request-timeout",
    "data-path", "mem-queue-size", "max-bytes-per-file", "sync-every", "sync-timeout", "queue-scan-worker-pool-max",
    "queue-scan-selection-count", "msg-timeout", "max-msg-timeout", "max-msg-size", "max-req-timeout",
    "max-body-size", "max-heartbeat-interval", "max-rdy-count", "max-output-buffer-size", "max-output-buffer-timeout",
    "min-output-buffer-timeout", "output-buffer-timeout", "max-channel-consumers", "statsd-address",
    "statsd-interval", "statsd-mem-stats", "statsd-prefix", "statsd-udp-packet-size", "statsd-exclude-ephemeral",
    "e2e-processing-latency-percentile", "e2e-processing-latency-window-time", "tls-cert", "tls-key",
    "tls-client-auth-policy", "tls-root-ca-file", "tls-required", "tls-min-version", "deflate", "max-deflate-level",
    "snappy",
]
OWN = {"output-buffer-flush", "handshake-timeout", "http-header-timeout", "auth-http-request-method",
       "auth-anchored", "auth-grace", "max-connections", "max-connections-per-address", "max-pending-handshakes",
       "max-buffered-bytes", "metrics-per-channel", "min-free-disk", "topic-storage", "log-sync", "log-retain-time",
       "log-retain-bytes", "log-retain-local-bytes", "log-overflow", "log-format", "enable-experiment", "topology-zone",
       "topology-region", "slow-loop", "bucket-cache-bytes",
       "busy-poll", "instance", "max-topics", "max-channels-per-topic", "max-create-rate", "http-extended-api",
       "http-allowed-hosts", "access-file", "audit-file", "audit-level", "publish-wait",
       "lookupd-root-ca-file", "lookupd-token-file", "bucket", "bucket-linger", "bucket-take-over", "bucket-timeout",
       "node-name"}


@pytest.mark.parametrize("words, found", [
    ([], {}),
    (["--"], {}),
    (["-max-rdy-count=7"], {"max_rdy_count": 7}),
    (["--max-rdy-count", "7"], {"max_rdy_count": 7}),
    (["--max-rdy-count=7", "-max-rdy-count", "9"], {"max_rdy_count": 9}),
    (["--max-rdy-count=7", "--"], {"max_rdy_count": 7}),
    (["--msg-timeout", "1m30s"], {"msg_timeout": 90 * 10**9}),
    (["--node-id", "-1"], {"node_id": -1}),
    (["--node-id=0x10", "--sync-every=1_000", "--mem-queue-size=010"],
     {"node_id": 16, "sync_every": 1000, "mem_queue_size": 8}),
    (["--verbose", "-snappy=false", "--deflate=T"], {"verbose": True, "snappy": False, "deflate": True}),
    (["--worker-id"], {"worker_id": True}),
    (["--log-level", "WARN"], {"log_level": 3}),
    (["--log-prefix="], {"log_prefix": ""}),
    (["--log-prefix", ""], {"log_prefix": ""}),
    (["--log-prefix", "--verbose"], {"log_prefix": "--verbose"}),
    (["--data-path=a=b"], {"data_path": "a=b"}),
    (["--tls-required"], {"tls_required": 2}),
    (["--tls-required=TCP-HTTPS"], {"tls_required": 1}),
    (["--tls-required=False"], {"tls_required": 0}),
    (["--tls-min-version=TLS1.2"], {"tls_min_version": 0x303}),
    (["--tls-min-version="], {"tls_min_version": 0x301}),
    (["--lookupd-tcp-address=a:1,b:2", "-lookupd-tcp-address", "c:3"], {"lookupd_tcp_address": ("a:1", "b:2", "c:3")}),
    (["--lookupd-tcp-address="], {"lookupd_tcp_address": ()}),
    (["--e2e-processing-latency-percentile=0.5, 1.0", "-e2e-processing-latency-percentile=9e-1"],
     {"e2e_processing_latency_percentile": (1.0, 0.9, 0.5)}),
    (["--output-buffer-flush=timeout"], {"output_buffer_flush": "timeout"}),
])
def test_forms(words, found):
    assert parse_flags(words) == found


@pytest.mark.parametrize("words, complaint", [
    (["--no-such-flag"], "unknown flag: '--no-such-flag'"),
    (["-max-msg-sise=5"], "unknown flag: '-max-msg-sise', did you mean --max-msg-size"),
    (["--mem_queue_size=5"], "did you mean --mem-queue-size"),
    (["--client-timeout=1s"], "unknown flag"),
    (["--max-msg-size=abc"], "--max-msg-size: 'abc' is not an integer"),
    (["--max-msg-size="], "--max-msg-size: ''"),
    (["--max-msg-size=1.5"], "not an integer"),
    (["--max-msg-size= 5"], "not an integer"),
    (["--max-msg-size=08"], "not an integer"),
    (["--max-msg-size=٣"], "not an integer"),
    (["--max-msg-size=9223372036854775808"], "not an integer of 64 bits"),
    (["--msg-timeout=10"], "--msg-timeout: '10' is not a duration"),
    (["--log-level=loud"], "--log-level: 'loud' is not a log level .debug, info, warn, error, fatal."),
    (["--log-level=2"], "log level"),
    (["--deflate=perhaps"], "--deflate: 'perhaps' is neither true nor false"),
    (["--deflate="], "neither true nor false"),
    (["--tls-min-version=ssl3.0"], "--tls-min-version"),
    (["--tls-required=perhaps"], "--tls-required"),
    (["--output-buffer-flush=never"], "turn, timeout"),
    (["--e2e-processing-latency-percentile=half"], "'half' is not a number"),
    (["--e2e-processing-latency-percentile=nan"], "'nan' is not a number"),
    (["--e2e-processing-latency-percentile=0.5,"], "'' is not a number"),
    (["--node-id"], "flag needs an argument: -node-id"),
    (["serve"], "unexpected argument: 'serve'"),
    ([""], "unexpected argument: ''"),
    (["-"], "unexpected argument: '-'"),
    (["--deflate", "false"], "unexpected argument: 'false'"),
    (["--", "x"], "unexpected argument: 'x'"),
    (["---x"], "bad flag syntax: ---x"),
    (["--=x"], "bad flag syntax"),
    (["-=x"], "bad flag syntax"),
    (["--two\nlines"], r"'--two\\nlines'"),
])
def test_what_cannot_be_read_is_told_in_a_line(words, complaint):
    with pytest.raises(FlagError, match=complaint) as told:
        parse_flags(words)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("word", ["-h", "--h", "-help", "--help"])
def test_help_is_asked_for(word):
    with pytest.raises(HelpWanted):
        parse_flags(["--verbose", word])


def test_every_flag_of_the_original_and_nsqcs_own_are_there():
    assert {flag_name(name) for name, flag in FLAGS.items() if not flag.own} == {f"--{name}" for name in ORIGINAL}
    assert {flag_name(name) for name, flag in FLAGS.items() if flag.own} == {f"--{name}" for name in OWN}


def test_the_help_tells_all_flags_once():
    lines = help_text().splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  --")] == [flag_name(name) for name in FLAGS]
    assert max(map(len, lines)) <= 120


def test_the_help_tells_defaults_and_what_is_special():
    assert describe("msg_timeout").endswith("(default 1m0s; changes on SIGHUP)")
    assert describe("output_buffer_flush").endswith("; not in nsqd)")
    assert describe("log_level").endswith("(default info; changes on SIGHUP)")
    assert describe("max_msg_timeout").endswith("(default 15m0s)")
