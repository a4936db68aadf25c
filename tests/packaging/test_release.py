"""The checks that prevent a release, and the contents of one."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from nsqc import __version__
from tests.packaging.conftest import DIST, RELEASER, ROOT, built
from tests.support.pages import blocks

RELEASE = (sys.executable, str(ROOT / "packaging" / "release.py"))
DATED = f"## [{__version__}] - 2026-01-31\n"


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x.invalid", *words], cwd=folder, check=True,
                   capture_output=True)


@pytest.fixture
def tree(tmp_path):
    """A clean tree, ready for a release."""
    (tmp_path / "nsqc").mkdir()
    (tmp_path / "nsqc" / "__init__.py").write_text((ROOT / "nsqc" / "__init__.py").read_text())
    (tmp_path / "CHANGELOG.md").write_text(DATED)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    return tmp_path


def check(tree) -> tuple[int, str]:
    done = subprocess.run([*RELEASE, "check", "--root", tree], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_clean_tree_with_an_entry(tree):
    assert check(tree) == (0, "")


def test_changes_that_are_not_committed(tree):
    (tree / "new").touch()
    assert check(tree) == (1, "no release: the tree has 1 changes that are not committed, new first\n")


@pytest.mark.parametrize(("text", "reason"), [
    ("## [0.0.1] - 2026-01-31\n", f"CHANGELOG.md has no entry `## [{__version__}] - DATE`"),
    (DATED.replace("2026-01-31", "unreleased"), f"CHANGELOG.md has 'unreleased' for the date of {__version__}"),
])
def test_the_changelog(tree, text, reason):
    (tree / "CHANGELOG.md").write_text(text)
    git(tree, "commit", "--quiet", "-am", "x")
    code, told = check(tree)
    assert code == 1 and reason in told


def test_this_version_has_an_entry():
    assert re.search(rf"^## \[{re.escape(__version__)}\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


MADE = ("nsqc_{0}_amd64.deb", "nsqc-nsq-compat_{0}_all.deb", "nsqc-{0}-1.x86_64.rpm", "nsqc-nsq-compat-{0}-1.noarch.rpm",
        "nsqc-{0}-image-amd64.tar", "nsqc-{0}.cdx.json", "nsqc-{0}.tgz")


@pytest.fixture(scope="module")
def released(tmp_path_factory, keyring):
    """dist/release, with real Debian packages, and stand-ins for files covered by other tests."""
    dist = tmp_path_factory.mktemp("dist")
    for name in ["nsqc", "nsqc-folder", f"nsqc-{__version__}.tar.gz", *(path.name for path in DIST.glob(f"nsqc-{__version__}-*.whl"))]:
        (dist / name).symlink_to(built(DIST / name))
    subprocess.run([sys.executable, ROOT / "packaging/deb.py", "--fast", "--out", dist], check=True, capture_output=True)
    for name in MADE:
        (dist / name.format(__version__)).touch()
    done = subprocess.run([*RELEASE, "collect", "--dist", dist, "--apt-key", RELEASER], capture_output=True, text=True, env=keyring)
    assert (done.returncode, done.stderr) == (0, "")
    return dist / "release"


def test_something_is_missing(tmp_path):
    (tmp_path / "nsqc").symlink_to(built(DIST / "nsqc"))
    done = subprocess.run([*RELEASE, "collect", "--dist", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"no release: there are 0 files {tmp_path.name}/nsqc-{__version__}.tar.gz\n")


def test_what_is_released(released, tmp_path):
    names = {path.name for path in released.iterdir()}
    assert {name.format(__version__) for name in MADE} <= names
    assert {"apt", "SHA256SUMS", f"nsqc-{__version__}-compose-compose.yaml", f"nsqc-{__version__}-kubernetes-nsqc.yaml"} <= names
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=released, check=True)
    summed = {line.split("  ")[1] for line in (released / "SHA256SUMS").read_text().splitlines()}
    assert summed == {str(path.relative_to(released)) for path in released.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    archive, = released.glob("nsqc-*-folder.tar.gz")
    subprocess.run(["tar", "xzf", archive], cwd=tmp_path, check=True)
    for executable in (tmp_path / archive.name.removesuffix(".tar.gz") / "nsqc",
                       released / archive.name.removesuffix("-folder.tar.gz")):
        assert __version__ in subprocess.run([executable, "--version"], capture_output=True, text=True).stdout


def apt_of(folder, repository, trust):
    """An apt-get command with its own lists and its own database of installed packages."""
    for name in ("lists/partial", "cache/archives/partial", "etc/preferences.d", "dpkg"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [{trust}] file:{repository} stable main\n")
    options = {"Dir::Etc": folder / "etc", "Dir::Etc::sourceparts": "/dev/null", "Dir::State": folder,
               "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache", "Dir::Etc::sourcelist": folder / "sources.list",
               "APT::Sandbox::User": "root", "APT::Architecture": "amd64"}
    return ["apt-get", *(f"-o{name}={value}" for name, value in options.items()), "--quiet"]


@pytest.mark.parametrize("signature", ["InRelease", "Release.gpg", None])
def test_apt_installs_from_the_repository(released, tmp_path, signature):
    """Signed in either form, or trusted without a signature."""
    repository = shutil.copytree(released / "apt", tmp_path / "apt")
    for name in {"InRelease", "Release.gpg"} - {signature}:
        (repository / "dists/stable" / name).unlink()
    apt = apt_of(tmp_path, repository, f"signed-by={repository}/nsqc.gpg" if signature else "trusted=yes")
    done = subprocess.run([*apt, "--error-on=any", "update"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*apt, "download", "nsqc", "nsqc-nsq-compat"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in (f"nsqc_{__version__}_amd64.deb", f"nsqc-nsq-compat_{__version__}_all.deb"):
        assert (tmp_path / name).read_bytes() == (released / name).read_bytes()


def test_apt_refuses_a_repository_that_was_changed(released, tmp_path):
    repository = shutil.copytree(released / "apt", tmp_path / "apt")
    (repository / "dists/stable/Release.gpg").unlink()
    signed = repository / "dists/stable/InRelease"
    signed.write_text(signed.read_text().replace("Label: nsqc", "Label: other"))
    done = subprocess.run([*apt_of(tmp_path, repository, f"signed-by={repository}/nsqc.gpg"), "--error-on=any", "update"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "BADSIG" in done.stderr


def test_a_key_that_gpg_does_not_have(keyring, released, tmp_path):
    package, = released.glob("nsqc_*.deb")
    done = subprocess.run([sys.executable, ROOT / "packaging/repository.py", "--key", "nobody@nsqc.invalid", tmp_path / "apt", package],
                          capture_output=True, text=True, env=keyring)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == ("the repository is not signed: gpg has not signed with the key nobody@nsqc.invalid: "
                                            "gpg --list-secret-keys shows yours")


# ---------------------------------------------------------------------- signatures


@pytest.fixture
def sums(tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / "release/SHA256SUMS").write_text("0  x\n")
    return tmp_path / "release/SHA256SUMS"


def sign(sums, key) -> subprocess.CompletedProcess:
    return subprocess.run([*RELEASE, "sign", "--dist", sums.parent.parent, "--key", key], capture_output=True, text=True)


def verified(sums, signers) -> bool:
    words = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "releaser", "-n", "nsqc-release", "-s", f"{sums}.sig"]
    with sums.open() as text:
        return subprocess.run(words, stdin=text, capture_output=True).returncode == 0


def test_a_signature_by_an_ssh_key(sums, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    assert sign(sums, key).returncode == 0
    signers = tmp_path / "signers"
    signers.write_text(f"releaser {key.with_suffix('.pub').read_text()}")
    assert verified(sums, signers)
    assert sign(sums, key).returncode == 0, "it is replaced"
    sums.write_text("1  x\n")
    assert not verified(sums, signers)


@pytest.fixture
def download(released, tmp_path):
    """A signed release, with the file `signers` that has the releaser's public key."""
    folder = shutil.copytree(released, tmp_path / "dist/release")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    done = subprocess.run([*RELEASE, "sign", "--dist", tmp_path / "dist", "--key", key], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "signers").write_text(f"releaser {key.with_suffix('.pub').read_text()}")
    return folder


def check_and_install(folder) -> subprocess.CompletedProcess:
    """Runs the page's commands, up to the start of the daemon."""
    script, *_ = blocks("docs/installing.md", heading="Download and run")
    *steps, start = script.replace("/usr/local/bin", f"{folder}/bin").splitlines()
    assert start.startswith("nsqc serve ")
    (folder / "bin").mkdir(exist_ok=True)
    return subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join([*steps, "bin/nsqc --version"])], cwd=folder, capture_output=True,
                          text=True)


def test_the_commands_for_a_download(download):
    done = check_and_install(download)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"nsqc {__version__} ")


@pytest.mark.parametrize("name", ["SHA256SUMS", f"nsqc-{__version__}-linux-x86_64"])
def test_the_commands_for_a_download_refuse_what_was_changed(download, name):
    with (download / name).open("ab") as file:
        file.write(b"\n")
    done = check_and_install(download)
    assert done.returncode != 0 and not (download / "bin/nsqc").exists()


@pytest.mark.skipif(shutil.which("minisign") is None, reason="minisign is not here (apt-get install minisign)")
def test_a_signature_by_a_minisign_key(sums, tmp_path):
    subprocess.run(["minisign", "-G", "-W", "-p", tmp_path / "key.pub", "-s", tmp_path / "key"], check=True, capture_output=True)
    done = sign(sums, tmp_path / "key")
    assert done.returncode == 0, done.stderr
    check = ["minisign", "-V", "-p", tmp_path / "key.pub", "-m", sums]
    assert subprocess.run(check, capture_output=True).returncode == 0
    sums.write_text("1  x\n")
    assert subprocess.run(check, capture_output=True).returncode != 0


@pytest.mark.parametrize("content, reason", [(None, "cannot be read: No such file"), ("no key\n", "ssh-keygen has not signed")])
def test_a_key_that_cannot_be_used(sums, tmp_path, content, reason):
    key = tmp_path / "key"
    if content:
        key.write_text(content)
    done = sign(sums, key)
    assert done.returncode == 1 and reason in done.stderr
    assert not (sums.parent / "SHA256SUMS.sig").exists()


# ---------------------------------------------------------------------- the bill of materials


def test_the_bill_of_materials(tmp_path):
    schema = pytest.importorskip("cyclonedx.validation.json", reason="the extra `delivery` is not here")
    from cyclonedx.schema import SchemaVersion

    built(DIST / "nsqc-folder")
    done = subprocess.run([sys.executable, ROOT / "packaging/sbom.py", "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / f"nsqc-{__version__}.cdx.json").read_text()
    assert schema.JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    found = {one["name"]: one for one in json.loads(text)["components"]}
    assert {"uvloop", "msgspec", "cramjam", "httptools", "google-re2", "cpython", "openssl", "libc6"} <= found.keys()
    assert not {"pyinstaller", "pyspark", "cython", "pytest"} & found.keys()
    assert found["uvloop"]["purl"] == f"pkg:pypi/uvloop@{found['uvloop']['version']}"
