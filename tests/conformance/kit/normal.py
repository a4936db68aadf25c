"""Replaces values that differ from run to run: versions, times, figures of memory."""

from __future__ import annotations

import re
import time
from typing import Any

from kit.data import sort_key
from kit.names import Names

TIME_KEYS = {"start_time", "connect_ts"}
UNORDERED_KEYS = {"clients", "producers"}
STATS_TEXT = [
    (r"^\S+ v\S+ \(built w/[^)]*\)$", "<server> v<version> (built w/<toolchain>)"),
    (r"^start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$", "start_time <time>"),
    (r"^uptime (\d+h)?(\d+m)?[\d.]+(ns|us|µs|ms|s)$", "uptime <duration>"),
    (r"^(   (?:heap_|gc_|next_gc_)\w+ *\t)\d+$", r"\1<number>"),
    (r"^( +\[V2 [^\]]*?):\d{5} ", r"\1:<port> "),
    (r"connected: (\d+h)?(\d+m)?\d+s$", "connected: <duration>"),
    (r"\b\d+\.\d(ns|us|ms|s)\b", "<latency>"),
]


class Normaliser:
    """Replaces volatile values of replies by fixed words."""

    def __init__(self, names: Names):
        self.names = names

    def json(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if key == "memory":
                return {k: self._number(v) for k, v in value.items()}
            if value.keys() == {"quantile", "value"} and value["value"] != 0:
                return {**value, "value": self._number(value["value"])}
            return {k: self.json(v, k) for k, v in value.items()}
        if isinstance(value, list):
            items = [self.json(v) for v in value]
            return sorted(items, key=sort_key) if key in UNORDERED_KEYS else items
        if isinstance(value, str):
            return self._text(value, key)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._integer(value, key)
        return value

    def lines(self, text: str) -> str:
        """Plain-text /stats and other replies meant for people."""
        for pattern, word in STATS_TEXT:
            text = re.sub(pattern, word, text, flags=re.M)
        return text

    @staticmethod
    def _number(value: Any) -> Any:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "<number>" if plain and value >= 0 else value

    def _integer(self, value: int, key: str) -> Any:
        if key in TIME_KEYS and abs(value - time.time()) < 3600:
            return "<unix time>"
        known = self.names.values
        for name in ("tcp_port", "http_port", "https_port"):
            if key == name and known.get(name) == str(value):
                return f"${{{name}}}"
        return value

    def _text(self, value: str, key: str) -> str:
        if key == "version" and re.fullmatch(r"\d+\.\d+\.\d+\S*", value):
            return "<version>"
        if key in ("hostname", "broadcast_address") and value == self.names.values["hostname"]:
            return "${hostname}"
        if key == "remote_address":
            return self.names.addresses.get(value, value)
        if key == "tls_cipher_suite" and value.startswith("Unknown "):
            return "<cipher>"
        return value
