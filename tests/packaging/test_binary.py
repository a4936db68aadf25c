"""The executable serves, stops and answers like the daemon from source."""

import contextlib
import errno
import fcntl
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nsqc import NSQD_VERSION, __version__
from nsqc.commands import ORIGINALS, TOOLS
from tests.packaging.conftest import DIST, ROOT, built
from tests.support.daemon import wait_until
from tests.support.manager import Manager, handed, listening
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context, connect, make_certificates

MEGABYTE = 1_000_000
GLIBC = re.compile(r"glibc (\d+\.\d+)")
# The executable contains a Python, perhaps of another version.
VERSION = re.compile(rf"nsqd v{re.escape(NSQD_VERSION)} \(built w/nsqc-{re.escape(__version__)}-python3\.\d+\.\d+\)\n")
TOPIC, CHANNEL = "t", "c"


@pytest.fixture
def frozen(daemon, binary):
    """frozen(*flags): a daemon run from the executable."""
    return lambda *flags, **more: daemon(*flags, command=(str(binary), "serve"), **more)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


def says(*words: str | Path, **more) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=WAIT_SECONDS, **more)
    assert (done.returncode, done.stderr) == (0, ""), (words, done)
    return done.stdout


def test_a_message_by_tcp_and_one_by_http(frozen):
    node = frozen()
    assert node.http("GET", "/ping") == (200, b"OK")
    taker = node.connect().sub(TOPIC, CHANNEL, 10)
    node.connect().pub(TOPIC, b"by tcp")
    assert taker.message().body == b"by tcp"
    node.post(f"/pub?topic={TOPIC}", b"by http")
    assert taker.message().body == b"by http"


def test_nothing_is_lost_over_a_stop(frozen):
    node = frozen("--mem-queue-size=50")
    bodies = [b"%d" % number for number in range(100)]
    client = node.connect()
    client.ok(f"SUB {TOPIC} {CHANNEL}")
    node.connect().pub(TOPIC, *bodies)
    client.close()
    node.restart()
    assert {message.body for message in node.connect().sub(TOPIC, CHANNEL, 100).messages(100, finish=True)} == {*bodies}
    assert node.stop() == 0


def test_nothing_stays_behind_a_kill(frozen):
    node = frozen()
    node.connect().pub(TOPIC, b"x")
    node.kill()
    # A daemon that is a separate process stops on its own, and nothing is lost.
    wait_until(lambda: refused(node.tcp_port) and is_free(node.data_path), "the end of the daemon")
    node.start()
    assert node.stop() == 0


def test_what_killed_daemons_have_unpacked_is_removed(daemon, open_folder, tmp_path):
    executable = open_folder / "nsqc"
    shutil.copy(built(DIST / "nsqc"), executable)
    place = tmp_path / "unpacked here, with spaces"
    place.mkdir()
    # Not to be removed: a folder still being unpacked has no lock yet, and a link points elsewhere.
    unfinished, elsewhere = place / "_MEIunfinished", tmp_path / "elsewhere"
    unfinished.mkdir()
    elsewhere.mkdir()
    (elsewhere / "nsqc.lock").touch()
    (place / "_MEIlink").symlink_to(elsewhere)
    others = {unfinished.name, "_MEIlink"}

    def unpacked() -> set[str]:
        return {path.name for path in place.iterdir()} - others

    def launch(name):
        return daemon(command=(str(executable), "serve"), data_path=tmp_path / name, env={"TMPDIR": str(place)})

    bystander = launch("bystander")
    kept = unpacked()
    node = launch("first killed")
    node.kill()
    wait_until(lambda: unpacked() == kept, "the removal by the second process")

    node = launch("both killed")
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    node.kill()
    left = unpacked() - kept
    node = launch("next")
    assert not left & unpacked(), "the next start removes it"
    assert kept < unpacked(), "one that runs keeps its own"
    assert bystander.http("GET", "/ping") == (200, b"OK")
    assert (node.stop(), bystander.stop()) == (0, 0)
    assert unpacked() == set()
    assert others == {path.name for path in place.iterdir()} and (elsewhere / "nsqc.lock").exists()


def test_a_junk_library_path_and_a_path_with_spaces(daemon, binary, tmp_path):
    home = tmp_path / "a folder, with spaces"
    shutil.copytree(binary.parent, home, symlinks=True)
    junk = tmp_path / "junk"
    junk.mkdir()
    for library in ("libpython3.11.so.1.0", "libssl.so.3", "libcrypto.so.3"):
        (junk / library).write_text("no library")
    node = daemon(command=(str(home / "nsqc"), "serve"), env={"LD_LIBRARY_PATH": str(junk)})
    assert node.http("GET", "/ping") == (200, b"OK")
    assert node.stop() == 0


def is_free(folder: Path) -> bool:
    """Whether no daemon locks the data path."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_tls_and_compression(frozen, certs):
    # Accepting any client certificate is a direct call into OpenSSL, whose library has another path here.
    node = frozen(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", "--https-address=127.0.0.1:0",
                  "--tls-client-auth-policy=require", "--tls-required=tcp-https")
    context = client_context(certs / "stranger")
    taker = connect(node, "tls+snappy", context).sub(TOPIC, CHANNEL, 10)
    for transport in ("tls", "tls+deflate", "tls+snappy"):
        connect(node, transport, context).pub(TOPIC, transport.encode() * 10_000)
        message = taker.message()
        taker.fin(message)
        assert message.body == transport.encode() * 10_000
    port = re.findall(r"HTTPS: listening on \S+:(\d+)", node.log)[-1]
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/ping", context=context, timeout=WAIT_SECONDS) as answer:
        assert answer.read() == b"OK"


def test_a_stranger_to_the_machine(binary, bare, daemon):
    """No environment, no home, temporary files elsewhere, not root."""
    command, folder = bare(binary)
    node = daemon(command=(*command, "serve"), data_path=folder)
    assert Path(f"/proc/{node.pid}").stat().st_uid != 0
    node.connect().pub(TOPIC, b"x")
    assert node.stats(TOPIC)["depth"] == 1
    node.restart()
    assert node.connect().sub(TOPIC, CHANNEL, 1).message().body == b"x"
    assert node.stop() == 0
    assert list((folder / "unpacked").iterdir()) == [], "what was unpacked is removed"


def test_the_tools_are_in_it_by_command_and_by_link(frozen, binary, tmp_path):
    node = frozen()
    nodes = ("--nsqd", f"127.0.0.1:{node.tcp_port}")
    subprocess.run([binary, "pub", "--topic", TOPIC, *nodes], input=b"a\nb\n", check=True, timeout=WAIT_SECONDS)
    assert says(binary, "tail", "--topic", TOPIC, "--channel", CHANNEL, "-n", "1", *nodes) == "a\n"
    for name in TOOLS:
        assert says(binary, name, "--help").startswith(f"Usage: nsqc {name} ")
    for name in ORIGINALS:
        (tmp_path / name).symlink_to(binary)
        if name != "to_nsq":
            assert says(tmp_path / name, "--version") == f"{name} v{NSQD_VERSION}\n"
    subprocess.run([tmp_path / "to_nsq", "-topic", TOPIC, f"-nsqd-tcp-address={nodes[1]}"], input=b"c", check=True, timeout=WAIT_SECONDS)
    done = subprocess.run([tmp_path / "nsq_tail", "-topic", TOPIC, "-channel", CHANNEL, f"-nsqd-tcp-address={nodes[1]}", "-n=2"],
                          capture_output=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout) == (0, b"b\nc\n")


def test_a_link_by_the_name_nsqd(daemon, binary, tmp_path):
    link = tmp_path / "nsqd"
    link.symlink_to(binary)
    assert VERSION.fullmatch(says(link, "--version"))
    node = daemon(command=(str(link),))
    node.connect().pub(TOPIC, b"x")
    assert node.stop() == 0


def test_commands(binary):
    # Each imports other modules, which freezing can miss.
    assert VERSION.fullmatch(says(binary, "serve", "--version"))
    assert says(binary, "--version").startswith(f"nsqc {__version__} ") and says(binary, "version") == says(binary, "--version")
    assert "--mem-queue-size" in says(binary, "serve", "--help")
    assert "serve" in says(binary, "--help")
    assert "#mem_queue_size = " in says(binary, "config", "init")
    assert "mem_queue_size" in says(binary, "config", "show")
    assert ".TH " in says(binary, "man")
    assert "nsqc" in says(binary, "completion", "bash")


def test_debug_pages(frozen):
    # Pages and tools imported on demand.
    node = frozen()
    for page in ("/info", "/stats", "/stats?format=json", "/config/log_level", "/debug/pprof/",
                 "/debug/pprof/goroutine", "/debug/pprof/heap"):
        status, body = node.http("GET", page)
        assert (status, bool(body)) == (200, True), page
    assert "Traceback" not in node.log


def test_every_module_is_in(binary):
    """The executable has every module of the source tree except those omitted on purpose."""
    from PyInstaller.archive.readers import CArchiveReader

    archive = CArchiveReader(str(binary))
    inside = set(archive.open_embedded_archive("PYZ.pyz").toc)
    where = set(archive.toc) if binary.parent.name != "lib" else {
        str(path.relative_to(binary.parent / "_internal")) for path in binary.parent.rglob("*.so")}
    compiled = {name.split(".", 1)[0].replace("/", ".") for name in where if name.startswith("nsqc/")}
    source = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
              for path in (ROOT / "nsqc").rglob("*.py*") if path.suffix in (".py", ".pyx")}
    source = {name for name in source if "__main__" not in name and not name.startswith(("nsqc.spark", "nsqc.testing"))}
    assert source <= inside | compiled
    left_out = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "setuptools", "Cython", "tkinter", "pytest", "nsqc.spark", "nsqc.testing"}
    assert not left_out & (inside | {name.split("/")[0] for name in where})


def test_the_admin_page_is_in(binary):
    from PyInstaller.archive.readers import CArchiveReader

    folder = binary.parent / "_internal"
    inside = {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set(CArchiveReader(str(binary)).toc)
    assert {f"nsqc/admin/page/{path.name}" for path in (ROOT / "nsqc/admin/page").iterdir()} <= inside


def test_size():
    """The limit has room for future modules; pydantic alone would fill it."""
    assert built(DIST / "nsqc").stat().st_size < 34 * MEGABYTE
    from PyInstaller.archive.readers import CArchiveReader

    packed = CArchiveReader(str(DIST / "nsqc")).open_embedded_archive("PYZ.pyz").toc
    assert not [name for name in packed if name.startswith("pydantic")]


@pytest.mark.old_systems
def test_what_is_compiled_here_needs_no_later_glibc_than_promised():
    told = says(sys.executable, ROOT / "packaging" / "glibc.py", "--promised", built(ROOT / "build" / "wheel" / "content"))
    assert version(GLIBC.search(told)[1]) <= promised()


def test_the_executable_needs_no_later_glibc_than_promised_or_here():
    # With `make portable` the interpreter also runs on older systems; otherwise it is this machine's.
    portable = (ROOT / "build" / "portable" / "ready").exists()
    words = ["--promised"] if portable else []
    told = says(sys.executable, ROOT / "packaging" / "glibc.py", *words, built(DIST / "nsqc-folder"))
    needed = version(GLIBC.search(told)[1])
    assert (2, 17) <= needed <= (promised() if portable else version(platform.libc_ver()[1]))


def promised() -> tuple[int, ...]:
    """The docs state the promised glibc version."""
    found = {version(GLIBC.search((ROOT / page).read_text())[1]) for page in ("README.md", "docs/installing.md")}
    assert len(found) == 1
    return found.pop()


def test_more_than_promised_is_refused(tmp_path):
    (tmp_path / "new.so").write_bytes(b"\x7fELF\0GLIBC_2.17\0GLIBC_2.99\0")
    done = subprocess.run([sys.executable, ROOT / "packaging" / "glibc.py", "--promised", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "needs glibc 2.99 or later (because of new.so)\n")
    assert done.stderr == "2.28 is promised\n"


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_under_a_service_manager(daemon, binary, tmp_path):
    """The one-file executable is two processes; the manager knows the first."""
    manager = Manager(f"{tmp_path}/notify")
    sockets = [listening(), listening()]
    with contextlib.closing(manager), contextlib.closing(sockets[0]), contextlib.closing(sockets[1]):
        node = daemon(**handed(sockets, "tcp:http", (str(binary), "serve"), NOTIFY_SOCKET=manager.address,
                               WATCHDOG_USEC="200000"))
        assert [node.tcp_port, node.http_port] == [sock.getsockname()[1] for sock in sockets]
        assert "TCP" in manager.hear_until("READY")[-1]["STATUS"]
        manager.hear_until("WATCHDOG")
        node.process.send_signal(signal.SIGHUP)
        manager.hear_until("RELOADING")
        manager.hear_until("READY")
        assert node.stop() == 0
        manager.hear_until("STOPPING")
        node.start()
        assert node.http("GET", "/ping") == (200, b"OK")
