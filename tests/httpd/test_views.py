"""Statistics, info and config as JSON and text: key order, nulls, omissions."""

import json
import os
import re
import socket

import pytest

from tests.support.patience import WAIT_SECONDS

TOPIC_KEYS = ["topic_name", "channels", "depth", "backend_depth", "message_count", "message_bytes", "paused",
              "e2e_processing_latency"]
CHANNEL_KEYS = ["channel_name", "depth", "backend_depth", "in_flight_count", "deferred_count", "message_count",
                "requeue_count", "timeout_count", "client_count", "clients", "paused", "e2e_processing_latency"]
CLIENT_KEYS = ["client_id", "hostname", "version", "remote_address", "state", "ready_count", "in_flight_count",
               "message_count", "finish_count", "requeue_count", "connect_ts", "sample_rate", "deflate", "snappy",
               "user_agent", "pub_counts", "tls", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol",
               "tls_negotiated_protocol_is_mutual"]
MEMORY_KEYS = ["heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
               "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs"]


@pytest.fixture
def client(server):
    """A V2 connection that consumes seen:c and has published to two topics."""
    host, port = server.wait_for(r"TCP: listening on (\S+)")[1].rsplit(":", 1)
    with socket.create_connection((host, int(port)), WAIT_SECONDS) as sock:
        for sent in (b"  V2SUB seen c\n", b"PUB seen\n\0\0\0\1x", b"PUB other\n\0\0\0\1x"):
            sock.sendall(sent)
            assert sock.recv(100) == b"\0\0\0\x06\0\0\0\0OK"
        yield sock


def test_keys_of_json_statistics(server, client):
    stats = server.call("GET", "/stats?format=json").json
    assert list(stats) == ["version", "health", "start_time", "topics", "memory", "producers"]
    topic = next(entry for entry in stats["topics"] if entry["topic_name"] == "seen")
    assert list(topic) == TOPIC_KEYS
    assert list(topic["channels"][0]) == CHANNEL_KEYS
    assert list(stats["producers"][0]) == CLIENT_KEYS
    assert list(topic["channels"][0]["clients"][0]) == CLIENT_KEYS
    assert list(stats["memory"]) == MEMORY_KEYS
    assert list(server.call("GET", "/stats?format=json&include_mem=0").json) == [
        "version", "health", "start_time", "topics", "producers"]


def test_producers_are_shown_for_the_topic_asked_for(server, client):
    def published(query):
        return [entry["pub_counts"] for entry in server.call("GET", f"/stats?format=json{query}").json["producers"]]

    assert published("&topic=seen") == [[{"topic": "seen", "count": 1}]]
    assert published("&topic=other") == [[{"topic": "other", "count": 1}]]
    assert len(published("")[0]) == 1


def test_memory_grows_with_messages(start):
    server = start("--mem-queue-size=100000")

    def used():
        return server.call("GET", "/stats?format=json").json["memory"]["heap_in_use_bytes"]

    before = used()
    for _ in range(20):
        server.call("POST", "/mpub?topic=heavy", b"\n".join([b"x" * 1000] * 1000))
    assert used() - before > 9_000_000


def test_text_statistics(server, client):
    text = server.call("GET", "/stats").body.decode()
    assert re.match(r"nsqd v1\.3\.0 \(built w/\S+\)\nstart_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)\n"
                    r"uptime [0-9.hm]+s\n\nHealth: OK\n\nMemory:\n", text)
    # 200 characters per line are not a rule, but a missing line end would exceed them.
    assert max(map(len, text.split("\n"))) < 200


def test_info(server):
    info = server.call("GET", "/info").json
    assert list(info) == ["version", "broadcast_address", "hostname", "http_port", "tcp_port", "start_time",
                          "max_heartbeat_interval", "max_output_buffer_size", "max_output_buffer_timeout",
                          "max_deflate_level"]
    assert f"127.0.0.1:{info['http_port']}" == server.address
    assert info["tcp_port"] == int(server.wait_for(r"TCP: listening on \S+:(\d+)")[1])
    assert info["hostname"] == socket.gethostname()


def test_log_level_changes_at_once(start):
    server = start()
    assert server.call("PUT", "/config/log_level", b"ERROR").json == 4
    server.call("GET", "/nothing")
    assert server.call("PUT", "/config/log_level", b"info").json == 2
    server.call("GET", "/something")
    server.wait_for("404 GET /something")
    assert "GET /nothing" not in server.log


@pytest.mark.parametrize("body,status", [
    (b"null", 200), (b"[]", 200), (b" [ ]\n", 200), (b'"127.0.0.1:1"', 400), (b"{}", 400), (b"[1]", 400), (b"[", 400),
    (b'["127.0.0.1:1"] x', 400), (b"[" * 9000 + b"]" * 9000, 400), (b"[" * 100_000, 400), (b"\xff", 400),
])
def test_addresses_are_read_as_go_does(server, body, status):
    assert server.call("PUT", "/config/nsqlookupd_tcp_addresses", body).status == status
    assert server.call("GET", "/ping").status == 200


def test_every_option_can_be_asked_for(server):
    for name in ("data_path", "mem_queue_size", "sync_timeout", "statsd_prefix", "auth_http_addresses",
                 "http_client_connect_timeout", "tls_cert", "log_prefix"):
        assert server.call("GET", f"/config/{name}").status == 200
    assert server.call("GET", "/config/data_path").body.decode().startswith(os.sep)
    reply = server.call("GET", "/config/tls_cert")
    assert (reply.body, reply.headers.get("content-type")) == (b"", None)
    assert json.loads(server.call("GET", "/config/sync_timeout").body) == 2_000_000_000


def test_numbers_are_written_as_by_go(start):
    server = start("--e2e-processing-latency-percentile=1.0,0.99,0.5")
    assert server.call("GET", "/config/e2e_processing_latency_percentiles").body == b"[1,0.99,0.5]"


def test_null_stays_null(start):
    """Like a nil slice in Go, until there is another value."""
    server = start()

    def put(body: bytes) -> tuple[bytes, bytes]:
        answer = server.call("PUT", "/config/nsqlookupd_tcp_addresses", body)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json; charset=utf-8")
        return answer.body, server.call("GET", "/config/nsqlookupd_tcp_addresses").body

    assert server.call("GET", "/config/nsqlookupd_tcp_addresses").body == b"[]"
    assert put(b" null\n") == (b"null", b"null")
    assert put(b"[]") == (b"[]", b"[]")
    assert put(b"null") == (b"null", b"null")
    assert put(b'["127.0.0.1:1"]') == (b'["127.0.0.1:1"]', b'["127.0.0.1:1"]')
