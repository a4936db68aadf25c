"""The examples of docs/client.md do what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "client.md"


def test_examples(daemon):
    node = daemon()
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    printed = []
    for example in examples:
        code = example.replace("127.0.0.1:4150", f"127.0.0.1:{node.tcp_port}")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == ""
    assert [line.split(" ")[0] for line in printed[1].splitlines()] == ["b'one'", "b'two'", "b'three'", "b'later'"]
    assert printed[2] == f"{sum(range(1000))}\n"


def test_it_brings_little_along():
    code = "import nsqc.client, sys; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"asyncio", "uvloop", "typer", "httptools", "msgspec", "cramjam", "pyspark", "pyarrow"}
