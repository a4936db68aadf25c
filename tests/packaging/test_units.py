"""The units for systemd, as systemd reads them."""

import configparser
import shutil
import subprocess
import sys

import pytest

from nsqc.options.declared import Options
from nsqc.options.option import MINUTE
from nsqc.process.running import ADMIN_NAMES, LOOKUPD_NAMES, NAMES
from tests.packaging.conftest import ROOT

PACKAGING = ROOT / "packaging"
sys.path.insert(0, str(PACKAGING))

from deb import instances  # noqa: E402

SOCKETS = {"tcp": "nsqc.socket", "http": "nsqc-http.socket", "https": "nsqc-https.socket"}
LOOKUPD_SOCKETS = {"tcp": "nsqc-lookupd.socket", "http": "nsqc-lookupd-http.socket"}
ADMIN_SOCKETS = {"http": "nsqc-admin.socket"}
EVERY_SOCKET = (*SOCKETS.values(), *LOOKUPD_SOCKETS.values(), *ADMIN_SOCKETS.values())
SERVICES = ("nsqc.service", "nsqc-lookupd.service", "nsqc-admin.service")
EXPOSURE = 13  # tenths, of 100; measured: 12


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(PACKAGING / name)
    return parser


@pytest.fixture
def copied(tmp_path):
    """All units, with an executable that exists."""
    for name in (*SERVICES, *EVERY_SOCKET):
        text = (PACKAGING / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/nsqc", shutil.which("true")))
    template = instances((tmp_path / "nsqc.service").read_text())
    (tmp_path / "nsqc@.service").write_text(template)
    return tmp_path


def test_systemd_understands_them(copied):
    units = [copied / name for name in (*SERVICES, *EVERY_SOCKET, "nsqc@.service")]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    told = [line for line in done.stderr.splitlines() if "nsqc" in line]
    assert (done.returncode, told) == (0, [])


def test_systemd_would_see_a_mistake(copied):
    with (copied / "nsqc.service").open("a") as out:
        out.write("[Service]\nWatchdogSecs=1\n")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copied / "nsqc.service"],
                          capture_output=True, text=True)
    assert "WatchdogSecs" in done.stderr


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(("threshold", "code"), [(EXPOSURE, 0), (1, 1)])
def test_little_is_exposed(service, threshold, code):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={threshold}",
                           PACKAGING / service], capture_output=True, text=True)
    assert f"Overall exposure level for {service}" in done.stdout, done.stderr
    assert done.returncode == code


def test_the_sockets_have_the_names_that_count():
    assert (tuple(SOCKETS), tuple(LOOKUPD_SOCKETS), tuple(ADMIN_SOCKETS)) == (NAMES, LOOKUPD_NAMES, ADMIN_NAMES)
    for sockets, service in ((SOCKETS, "nsqc.service"), (LOOKUPD_SOCKETS, "nsqc-lookupd.service"),
                             (ADMIN_SOCKETS, "nsqc-admin.service")):
        for name, file in sockets.items():
            section = unit(file)["Socket"]
            assert (section["FileDescriptorName"], section["Service"]) == (name, service)


@pytest.mark.parametrize("service", SERVICES)
def test_only_systemctl_stop_and_invalid_flags_leave_it_down(service):
    """A drain requested over HTTP, and a signal from elsewhere, end it with exit code 0."""
    section = unit(service)["Service"]
    assert (section["Restart"], section["RestartPreventExitStatus"]) == ("always", "2")
    assert "SuccessExitStatus" not in section


def test_a_stop_drains_and_a_restart_does_not():
    section = unit("nsqc.service")["Service"]
    assert (section["KillSignal"], section["RestartKillSignal"]) == ("SIGUSR1", "SIGTERM")
    # A drain may take as long as a message may, and waiting messages are written after it.
    assert section["TimeoutStopSec"] == "5min"
    assert Options().msg_timeout * 2 < 5 * MINUTE
    for service in SERVICES[1:]:
        assert "KillSignal" not in unit(service)["Service"]
