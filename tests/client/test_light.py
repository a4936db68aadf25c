"""Modules that importing the client loads."""

import subprocess
import sys

import pytest

HEAVY = {"asyncio", "uvloop", "typer", "httptools", "msgspec", "cramjam", "pyspark", "pyarrow", "http.client", "email", "inspect",
         "dataclasses", "concurrent.futures", "multiprocessing", "difflib", "ipaddress"}
OF_ASYNCIO = {"asyncio", "inspect", "concurrent.futures", "ipaddress"}


@pytest.mark.parametrize("module,allowed", [("nsqc.client", set()), ("nsqc.client.aio", OF_ASYNCIO)])
def test_it_brings_little_along(module, allowed):
    code = f"import {module}, sys; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & (HEAVY - allowed)
