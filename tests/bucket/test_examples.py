"""The examples of packaging for nodes without a volume: their command lines, run in one empty folder after the other."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.bucket.test_daemon import lines_of, lose

PACKAGING = Path(__file__).parents[2] / "packaging"


class Container(NamedTuple):
    words: list[str]
    environment: dict[str, str]


class Loader(yaml.SafeLoader):
    """Reads Compose's !override."""


Loader.add_constructor("!override", lambda loader, node: loader.construct_sequence(node))


def of_compose() -> Container:
    """The service nsqd, as Compose merges the two files."""
    base, bucket = (yaml.load((PACKAGING / "compose" / name).read_text(), Loader)["services"]["nsqd"]
                    for name in ("compose.yaml", "bucket.yaml"))
    assert bucket["volumes"] == [] and [place.partition(":")[0] for place in bucket["tmpfs"]] == ["/data"]
    program, *words = shlex.split(base["command"])
    assert program == "/nsqd"
    # A variable without a value is that of the shell, if any.
    environment = {name: value for name, value in {**base["environment"], **bucket["environment"]}.items() if value is not None}
    assert re.fullmatch(r"\$\{NSQC_BUCKET:\?.+\}", environment["NSQC_BUCKET"])
    return Container(words, environment)


def of_helm() -> Container:
    """The container of a pod of the chart, by Helm."""
    pytest.importorskip("helm_python", reason="the extra `delivery` is not here (make package-test installs it)")
    sys.path.insert(0, str(PACKAGING))
    from manifests import rendered

    objects = [*yaml.safe_load_all(rendered(yaml.safe_load((PACKAGING / "helm" / "bucket-values.yaml").read_text())))]
    nodes, = [one for one in objects if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "nsqc"]
    spec = nodes["spec"]["template"]["spec"]
    assert "volumeClaimTemplates" not in nodes["spec"] and {"name": "data", "emptyDir": {}} in spec["volumes"]
    first, = spec["containers"]
    program, *words = first["args"]
    assert program == "serve"
    return Container([word for word in words if not word.startswith(("--config", "--data-path"))],
                     {one["name"]: one["value"].replace("$(POD_NAME)", "nsqc-0") for one in first["env"] if "value" in one})


@pytest.mark.parametrize("example", [of_compose, of_helm])
def test_a_node_without_a_volume_continues_in_an_empty_folder(example, daemon, tmp_path):
    container = example()
    environment = {**os.environ, **container.environment, "NSQC_BUCKET": f"file://{tmp_path}/bucket"}
    for name in ("NSQC_TCP_ADDRESS", "NSQC_HTTP_ADDRESS"):
        environment.pop(name, None)
    one = daemon(*container.words, env=environment)
    bodies = [b"%d" % number for number in range(100)]
    one.publish("orders", *bodies)
    lose(one)
    two = daemon(*container.words, env=environment)
    assert "watching" not in two.log
    assert [line["body"].encode() for line in lines_of(two, "orders")] == bodies
    assert two.stop() == 0
    shutil.rmtree(two.data_path)
    assert len(lines_of(daemon(*container.words, env=environment), "orders")) == 100
