"""docs/installing.md: its commands, run with docker, kubectl and helm of tests/packaging/stand_ins.py."""

import os
import shutil
import subprocess

import pytest

pytest.importorskip("helm_python", reason="the extra `delivery` is not here (make package-test installs it)")

from nsqc import __version__
from tests.packaging import container, stand_ins
from tests.packaging.conftest import ROOT
from tests.support.pages import blocks
from tests.support.patience import WAIT_SECONDS

PAGE = "docs/installing.md"
# A separate network: other processes use the page's ports as well.
SCRIPT = "ip link set lo up\n"


@pytest.fixture
def machine(archive, tmp_path):
    """run(*blocks): runs them in a folder with the files of a release."""
    folder, programs, state = tmp_path / "release", tmp_path / "bin", tmp_path / "state"
    folder.mkdir()
    programs.mkdir()
    (folder / "packaging").symlink_to(ROOT / "packaging")
    shutil.copy(archive, folder / f"nsqc-{__version__}-image-amd64.tar")
    environment = {**os.environ, **stand_ins.install(programs, state)}

    def run(*steps: str) -> str:
        done = subprocess.run(["unshare", "--net", "bash", "-euo", "pipefail", "-c", SCRIPT + "\n".join(steps)], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=4 * WAIT_SECONDS)
        logs = "".join(f"\n{path.name}:\n{path.read_text()}" for path in state.glob("containers/*.log"))
        assert done.returncode == 0, done.stdout + logs
        return done.stdout

    yield run
    stand_ins.tidy(state)


@container.needs_root
@pytest.mark.skipif(shutil.which("ip") is None or shutil.which("nsenter") is None, reason="ip or nsenter is not here")
def test_docker(machine, tmp_path):
    """Makes the first node's volume root's, as nsqio/nsq leaves it."""
    started, = blocks(PAGE, "bash", "The image")
    replaced, = blocks(PAGE, "bash", "In place of nsqio/nsq")
    told = machine(started, f"chown -R 0:0 {tmp_path}/state/volumes/nsq", replaced)
    assert told.count("OK") == 3 and "greetings" in told.splitlines()[-1], told     # two probes and a publish
    for name in ("nsqd", "nsqd2"):
        assert "NSQ: bye" in (tmp_path / f"state/containers/{name}.log").read_text()


def test_kubernetes(machine, tmp_path):
    (tmp_path / "release/access.toml").write_text("[users.x]\n")
    for name in ("drain-token", "page-token"):
        (tmp_path / "release" / name).write_text("x\n")
    told = machine(*blocks(PAGE, "bash", "Kubernetes"))
    assert told.count(" objects") == 3


def test_the_stand_ins_refuse_other_words(machine):
    with pytest.raises(AssertionError, match="--file"):
        machine("kubectl apply --namespace nsq --file x")
    with pytest.raises(AssertionError, match="pullPolicyy"):
        machine("helm install nsqc packaging/helm/nsqc --namespace nsq --set image.pullPolicyy=nowhere")


def test_every_command_of_the_page_is_run():
    """No script block of its section is marked as another language."""
    text = (ROOT / PAGE).read_text().partition("\n## Containers\n")[2].partition("\n## ")[0]
    marked = sum(len(blocks(PAGE, "bash", title)) for title in ("The image", "In place of nsqio/nsq", "Kubernetes"))
    assert marked == text.count("```bash\n")
    assert not [block for block in blocks(PAGE) if block.startswith(("docker ", "kubectl ", "helm ")) and block not in blocks(PAGE, "bash")]
