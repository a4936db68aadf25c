"""The container image: read as a registry reads it, and run as a runtime runs it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from nsqc import __version__, version_line
from tests.packaging import container
from tests.packaging.conftest import ROOT
from tests.support.daemon import logged, wait_until
from tests.support.lookupd import LookupServer, Node
from tests.support.patience import WAIT_SECONDS

MOST_BYTES = 60_000_000
pytestmark = container.needs_root


@pytest.fixture
def contained(image, data):
    nodes = []

    def start(*flags, **more):
        nodes.append(container.Contained(image, data, *flags, **more))
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()


# ---------------------------------------------------------------------- the archive


def test_the_same_files_give_the_same_bytes(archive, tmp_path):
    again = subprocess.run([sys.executable, ROOT / "packaging/image.py", "--out", tmp_path], check=True, capture_output=True,
                           text=True, env={**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"}).stdout.strip()
    with open(again, "rb") as one, archive.open("rb") as other:
        assert one.read() == other.read()
    later = subprocess.run([sys.executable, ROOT / "packaging/image.py", "--out", tmp_path], check=True, capture_output=True,
                           text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "7"}).stdout.strip()
    with tarfile.open(later) as tar:
        assert {entry.mtime for entry in tar} == {7}


def test_it_is_small_and_belongs_to_nobody_else(image):
    size = 0
    for path in image.root.rglob("*"):
        status = path.lstat()
        size += status.st_size
        assert not status.st_mode & 0o6000, f"{path} runs as its owner"
        place = path.relative_to(image.root).parts[0]
        if place in ("proc", "dev", "data", "tmp"):
            continue
        assert (status.st_uid, status.st_gid) == (0, 0) and (path.is_symlink() or not status.st_mode & 0o022), path
    assert size < MOST_BYTES
    assert (image.root / "data").stat().st_mode & 0o7777 == 0o775
    assert not (image.root / "bin/sh").exists() and not (image.root / "usr/bin/sh").exists()


def test_the_authorities_are_the_packages_own(image):
    """Not those that an administrator added to the build machine."""
    text = (image.root / "etc/ssl/certs/ca-certificates.crt").read_text()
    wanted = sum(path.read_text().count("BEGIN CERTIFICATE") for path in
                 Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))
    assert text.count("BEGIN CERTIFICATE") == wanted > 50


def test_docker_finds_its_own_description(archive):
    parts = container.parts(archive)
    described, = json.loads(parts["manifest.json"])
    assert described["RepoTags"] == [f"nsqc:{__version__}"]
    assert all(name in parts for name in (described["Config"], *described["Layers"]))


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not here (apt-get install skopeo)")
def test_others_read_it(archive):
    for transport in ("oci-archive", "docker-archive"):
        done = subprocess.run(["skopeo", "inspect", "--config", f"{transport}:{archive}"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["config"]["User"] == f"{container.USER}:{container.USER}"


# ---------------------------------------------------------------------- running it


def status_of(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def test_the_daemon_as_process_1(contained, image, data):
    """Non-root, on a read-only root, with the image's own command; stopped like `docker stop`, and started again."""
    node = contained(NSQC_MAX_RDY_COUNT="77")
    assert node.http("GET", "/config/max_rdy_count") == (200, b"77")
    node.connect().pub("t", b"x")
    first = container.first_process(node.process)
    assert status_of(first)["NSpid"].split()[-1] == "1" and status_of(first)["Uid"].split() == [str(container.USER)] * 4
    assert status_of(first)["Groups"].split() == []
    assert node.stop() == 0
    assert (data / "nsqd.dat").stat().st_uid == container.USER
    node.start()
    assert node.connect().sub("t", "c", 1).message().body == b"x"
    probed = container.run(image, data, "probe", f"127.0.0.1:{node.http_port}")
    assert (probed.returncode, probed.stdout) == (0, "OK\n")
    assert node.stop(signal.SIGINT) == 0


def test_a_drain_by_signal(contained):
    node = contained()
    assert node.stop(signal.SIGUSR1) == 0
    logged(node, "DRAIN")


def test_any_user_of_group_0(image, data):
    """As in clusters that give each namespace its own user ids."""
    os.chmod(data, 0o775)
    words = image.words(data, ["config", "check", "/data/none"], user="1000650000:0")
    done = subprocess.run(words, env=image.environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (1, "") and "failed to load config file /data/none" in done.stdout


@pytest.mark.parametrize("as_entrypoint", [True, False], ids=["entrypoint", "command"])
@pytest.mark.parametrize("path", ["/nsqd", "nsqd", "/usr/local/bin/nsqd"])
def test_commands_of_nsqs_image(image, data, path, as_entrypoint):
    """Kubernetes' `command` replaces the entry point; Docker and Compose append theirs to it."""
    words = [path, "--version"]
    done = container.run(image, data, *([] if as_entrypoint else words), entrypoint=words if as_entrypoint else None)
    assert (done.returncode, done.stdout) == (0, version_line("nsqd") + "\n"), done.stderr


@pytest.mark.parametrize("tool", ["nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq"])
def test_tools_of_nsqs_image(image, data, tool):
    for entrypoint, words in (([f"/{tool}", "--version"], []), (None, [f"/{tool}", "--version"]), (None, [tool, "--version"])):
        done = container.run(image, data, *words, entrypoint=entrypoint)
        assert (done.returncode, done.stdout) == (0, f"{tool} v1.3.0\n"), done.stderr


def test_nsqd_with_its_flags(contained, data):
    node = contained("-max-rdy-count", "5", command=["/nsqd"])
    assert node.http("GET", "/config/max_rdy_count") == (200, b"5")
    node.connect().pub("t", b"x")
    assert node.stop() == 0
    assert (data / "nsqd.dat").exists()


def test_the_lookup_server(image, data, tmp_path):
    words = image.words(data, ["/nsqlookupd"])
    server = LookupServer(tmp_path / "log", command=words, env={"PATH": os.environ["PATH"], **image.environment()})
    try:
        node = Node(server, "a.example")
        node.ok("REGISTER t")
        assert server.found("t") == ["a.example"]
        os.kill(container.first_process(server.process), signal.SIGTERM)
        assert server.process.wait(WAIT_SECONDS) == 0
    finally:
        server.close()


def test_a_tool_as_process_1_is_stopped_by_its_signals(image, data, daemon):
    """The kernel would ignore signals without a handler."""
    node = daemon()
    node.post("/topic/create?topic=t")
    words = image.words(data, ["/nsq_to_file", f"--nsqd-tcp-address=127.0.0.1:{node.tcp_port}", "--topic=t", "--channel=c",
                               "--output-dir=/data"])
    tool = subprocess.Popen(words, env=image.environment(PATH=os.environ["PATH"]), stderr=subprocess.PIPE)
    try:
        wait_until(lambda: node.stats("t")["channels"], "the tool's channel")
        os.kill(container.first_process(tool), signal.SIGTERM)
        assert tool.wait(WAIT_SECONDS) == 0, tool.stderr.read()
    finally:
        tool.kill()
        tool.wait()
        tool.stderr.close()
