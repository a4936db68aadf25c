"""The options: defaults, ranges, changes at run time."""

import hashlib
import socket
import zlib

import msgspec
import pytest

from nsqc.options.declared import FLAGS, SERVE, OptionError, Options, Settings

MS, S = 10**6, 10**9
# nsqd 1.3.0's.
DEFAULTS = {
    "version": False, "config": "", "log_level": 2, "log_prefix": "[nsqd] ", "verbose": False, "worker_id": False,
    "tcp_address": "0.0.0.0:4150", "http_address": "0.0.0.0:4151", "https_address": "0.0.0.0:4152",
    "broadcast_address": socket.gethostname(), "broadcast_tcp_port": 0, "broadcast_http_port": 0,
    "lookupd_tcp_address": (), "auth_http_address": (),
    "http_client_connect_timeout": 2 * S, "http_client_request_timeout": 5 * S,
    "data_path": "", "mem_queue_size": 10000, "max_bytes_per_file": 104857600, "sync_every": 2500,
    "sync_timeout": 2 * S, "queue_scan_worker_pool_max": 4, "queue_scan_selection_count": 20,
    "msg_timeout": 60 * S, "max_msg_timeout": 900 * S, "max_msg_size": 1048576, "max_req_timeout": 3600 * S,
    "max_body_size": 5242880, "max_heartbeat_interval": 60 * S, "max_rdy_count": 2500,
    "max_output_buffer_size": 65536, "max_output_buffer_timeout": 30 * S, "min_output_buffer_timeout": 25 * MS,
    "output_buffer_timeout": 250 * MS, "max_channel_consumers": 0,
    "statsd_address": "", "statsd_interval": 60 * S, "statsd_mem_stats": True, "statsd_prefix": "nsq.%s",
    "statsd_udp_packet_size": 508, "statsd_exclude_ephemeral": False,
    "e2e_processing_latency_percentile": (), "e2e_processing_latency_window_time": 600 * S,
    "tls_cert": "", "tls_key": "", "tls_client_auth_policy": "", "tls_root_ca_file": "", "tls_required": 0,
    "tls_min_version": 0x301, "deflate": True, "max_deflate_level": 6, "snappy": True,
}


def test_defaults_are_nsqds():
    options = msgspec.structs.asdict(Options())
    own = {name for name, flag in FLAGS.items() if flag.own}
    assert {name: value for name, value in options.items() if name in FLAGS and name not in own | {"node_id"}} == DEFAULTS
    SERVE.check(Options())


def test_the_node_id_is_the_hash_of_the_host_name():
    digest = hashlib.md5(socket.gethostname().encode()).digest()
    assert Options().node_id == zlib.crc32(digest) % 1024


@pytest.mark.parametrize("changes, complaint", [
    ({"node_id": 1024}, "--node-id must be at most 1023, not 1024"),
    ({"node_id": -1}, "--node-id must be at least 0, not -1"),
    ({"max_deflate_level": 0}, "--max-deflate-level must be at least 1"),
    ({"max_deflate_level": 10}, "--max-deflate-level must be at most 9"),
    ({"max_msg_size": 0}, "--max-msg-size"), ({"max_body_size": 2**63}, "--max-body-size"),
    ({"mem_queue_size": -1}, "--mem-queue-size"), ({"sync_every": 0}, "--sync-every"),
    ({"sync_timeout": 0}, "--sync-timeout must be at least 1ns, not 0s"),
    ({"msg_timeout": -S}, "--msg-timeout must be at least 1ns, not -1s"),
    ({"msg_timeout": 2**63 - 1}, "--msg-timeout must be at most 876000h0m0s"),
    ({"max_req_timeout": 2**32 * MS}, "--max-req-timeout must be at most 1193h2m47.295s"),
    ({"broadcast_tcp_port": 65536}, "--broadcast-tcp-port"),
    ({"handshake_timeout": 0}, "--handshake-timeout"), ({"http_header_timeout": 0}, "--http-header-timeout"),
    ({"e2e_processing_latency_percentile": (0.5, 0.0)}, "percentile must be above 0 and at most 1, not 0.0"),
    ({"e2e_processing_latency_percentile": (1.5,)}, "percentile must be above 0 and at most 1, not 1.5"),
    ({"e2e_processing_latency_percentile": (float("nan"),)}, "percentile"),
])
def test_values_out_of_range(changes, complaint):
    with pytest.raises(OptionError, match=complaint):
        SERVE.check(Options(**changes))


@pytest.mark.parametrize("changes", [
    {"node_id": 0}, {"node_id": 1023}, {"max_deflate_level": 1}, {"max_deflate_level": 9}, {"mem_queue_size": 0},
    {"e2e_processing_latency_percentile": (1.0, 0.0001)}, {"max_req_timeout": 0}, {"max_heartbeat_interval": 0},
    {"snappy": False, "deflate": False}, {"https_address": ""}, {"tls_min_version": 0x304},
])
def test_values_at_the_edge(changes):
    SERVE.check(Options(**changes))


def test_instances_share_a_config_file():
    given = Options(node_id=1022, data_path="/srv/nsqc/", tcp_address="/run/nsqc.sock", http_address="[::1]:4151",
                    https_address="127.0.0.1:0", broadcast_tcp_port=5150, audit_file="audit.log", instance=3)
    seen = given.numbered()
    assert (seen.node_id, seen.data_path, seen.tcp_address, seen.http_address, seen.https_address) == (
        1, "/srv/nsqc-3", "/run/nsqc.sock-3", "[::1]:4451", "127.0.0.1:0")
    assert (seen.broadcast_tcp_port, seen.broadcast_http_port, seen.audit_file) == (5450, 0, "audit.log-3")
    assert Options(data_path="", instance=1).numbered().data_path == ""
    assert Options().numbered() == Options()


def test_config_names():
    options = Options(node_id=5, lookupd_tcp_address=("a:1",))
    assert options.by_config_name("id") == 5
    assert options.by_config_name("nsqlookupd_tcp_addresses") == ["a:1"]
    assert options.by_config_name("output_buffer_flush") == "turn"
    for name in ("node_id", "node-id", "version", "config", "verbose", "worker_id", "client_timeout", "replace", ""):
        with pytest.raises(KeyError):
            options.by_config_name(name)


def test_settings_change_at_run_time():
    settings, told = Settings(Options()), []
    settings.on_change(lambda changed: told.append(changed.log_level))
    settings.change(log_level=1)
    assert (settings.now.log_level, told) == (1, [1])
    with pytest.raises(OptionError):
        settings.change(node_id=5000)
    assert (settings.now.node_id, told) == (Options().node_id, [1])
