"""Passwords in URLs and tokens are shown nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from nsqc.log.formats import mask, mask_address, mask_word
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer

ROOT = Path(__file__).parent.parent.parent
SECRET = "s3cret"
TOKEN = f"nsqc_0123456789ab_{'sY_2k-' * 7}x"


@pytest.mark.parametrize(("text", "shown"), [
    ("http://u:p@h:80/x", "http://u:xxxxx@h:80/x"),
    ("dial https://u:p@h: refused, see http://i:80 and ftp://:q@j", "dial https://u:xxxxx@h: refused, see http://i:80 and ftp://:xxxxx@j"),
    ("['http://u:p@h', 'http://v:q@i']", "['http://u:xxxxx@h', 'http://v:xxxxx@i']"),
    ('["http://u:p@h","http://v:q@i"]', '["http://u:xxxxx@h","http://v:xxxxx@i"]'),
    ("http://u:p@ss/w:rd#@h:1/x", "http://u:xxxxx@h:1/x"),
    ("http://u:1@h", "http://u:xxxxx@h"),
    ("http://u@h", "http://u@h"), ("http://h:80/a@b", "http://h:80/a@b"), ("http://h:80 a@b", "http://h:80 a@b"),
    ("http://[::1]:80/a@b", "http://[::1]:80/a@b"), ("a:b@c", "a:b@c"), ("http://h", "http://h"), ("", ""),
    (f"GET /ping?token={TOKEN}&x", "GET /ping?token=nsqc_0123456789ab_xxxxx&x"), ("nsqc_http_requests_total", "nsqc_http_requests_total"),
    (f"see http://{TOKEN}@h:1/ and {TOKEN}", "see http://nsqc_0123456789ab_xxxxx@h:1/ and nsqc_0123456789ab_xxxxx"),
])
def test_texts(text, shown):
    assert mask(text) == shown


@pytest.mark.parametrize(("text", "shown"), [
    ("u:p@h:4180", "u:xxxxx@h:4180"), ("http://u:p w@h/x", "http://u:xxxxx@h/x"), ("u@h:1", "u@h:1"), ("h:1", "h:1"),
    ("/path/a:b@c", "/path/a:b@c"), ("http://h:1/x@y", "http://h:1/x@y"), ("see http://u:p@h", "see http://u:xxxxx@h"),
])
def test_values_of_options(text, shown):
    assert mask_address(text) == shown
    assert mask_word(f"--auth-http-address={text}") == f"--auth-http-address={shown}"
    assert mask_word(text) == shown


@pytest.mark.parametrize("address", [f"user:{SECRET}@127.0.0.1:1", f"http://user:{SECRET}@127.0.0.1:1/auth"])
def test_the_daemon(tmp_path, address):
    """Checks its log, its pages and its reloads."""
    config = tmp_path / "nsqc.cfg"
    config.write_text(f'auth_http_addresses = ["{address}"]\n')
    shown = address.replace(SECRET, "xxxxx")
    node = Daemon(tmp_path / "data", f"--config={config}", cwd=ROOT)    # its own process
    try:
        assert node.http("GET", "/config/auth_http_addresses") == (200, f'["{shown}"]'.encode())
        client = node.connect()
        client.command("IDENTIFY", b"{}")
        client.frame()
        client.send(b"AUTH\n\0\0\0\1x")
        wait_until(lambda: "AUTH failed" in node.log, seconds=60)
        config.write_text(f'auth_http_addresses = ["{address}2"]\n')
        node.process.send_signal(1)
        wait_until(lambda: f"needs a restart: it stays {shown}, the new value is {shown}2" in node.log, seconds=60)
        node.http("GET", f"/ping?http://u:{SECRET}@h/")
        client.close()
        node.restart(f"--auth-http-address={address}")
        assert f"--auth-http-address={shown}".encode() in node.http("GET", "/debug/pprof/cmdline")[1]
        for page in ("/stats", "/info", "/debug/slow", "/debug/pprof/goroutine", "/metrics", "/config/auth_http_addresses"):
            assert SECRET.encode() not in node.http("GET", page)[1]
        assert node.stop() == 0
        wait_until(lambda: "GET /ping?http://u:xxxxx@h/" in node.log)
        assert SECRET not in node.log
    finally:
        node.close()


def test_the_lookup_server(tmp_path):
    server = LookupServer(tmp_path / "log", f"--log-prefix=http://u:{SECRET}@h", cwd=ROOT)     # its own process
    try:
        assert b"--log-prefix=http://u:xxxxx@h" in server.call("GET", "/debug/pprof/cmdline")[1]
        server.call("GET", f"/ping?http://u:{SECRET}@h/")
        assert server.stop() == 0
        assert f"INFO: 200 GET /ping?http://u:{SECRET}" not in server.log
    finally:
        server.close()


@pytest.mark.parametrize("words", [
    ["serve", f"--auth-http-address=http://u:{SECRET}@h:0"], ["serve", f"--auth-http-address=ftp://u:{SECRET}@h"],
    ["serve", f"--auth-http-addres=http://u:{SECRET}@h"], ["serve", f"http://u:{SECRET}@h"], ["lookupd", f"http://u:{SECRET}@h"],
    ["serve", f"--mem-queue-size=http://u:{SECRET}@h"], ["config", "show", f"--auth-http-address=http://u:{SECRET}@h"],
    ["config", "show", f"--auth-http-address=u:{SECRET}@h:1"], ["config", "show", f"http://u:{SECRET}@h"],
])
def test_errors_and_listings(words):
    done = subprocess.run([sys.executable, "-m", "nsqc", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 if "show" in words and words[-1].startswith("--") else done.returncode > 0
    assert SECRET not in done.stdout + done.stderr
