"""The formats through Spark Connect, whose client knows Spark by its protocol only."""

import subprocess
import sys
from pathlib import Path

from tests.spark.conftest import address

ROOT = Path(__file__).parent.parent.parent


def test_there_and_back(daemon, tmp_path):
    one = daemon()
    ran = subprocess.run([sys.executable, "-m", "tests.spark.connect", address(one), str(tmp_path)], cwd=ROOT,
                         capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "rows 1000 pyspark.sql.connect.session" in ran.stdout
    assert one.stats("t")["message_count"] == 1000
