"""`nsqc access`."""

import json
import re
import subprocess
import sys

import pytest

from nsqc.access.rules import parse_hash, read
from nsqc.commands.app import run


@pytest.fixture
def nsqc(capsys):
    """nsqc(*words) -> exit code, stdout, stderr of `nsqc access WORDS`."""
    def call(*words):
        code = run(["access", *map(str, words)])
        return code, *capsys.readouterr()

    return call


def test_token(nsqc):
    code, told, errors = nsqc("token")
    assert (code, errors) == (0, "")
    token, stored = re.fullmatch(r'token:  (\S+)\ntokens = \["(\S+)"\]\n', told).groups()
    assert parse_hash(stored).matches(token.encode())
    found = json.loads(nsqc("token", "--json")[1])
    assert parse_hash(found["hash"]).matches(found["token"].encode())


@pytest.fixture
def file(access):
    access.head = 'anonymous = ["dash"]\n[roles.dash]\nstats = ["*"]\n'
    access.user("a", publish=["orders.*"], consume=["orders.*/billing"])
    return access.write().path


def test_check(file, tmp_path, nsqc):
    assert nsqc("check", file) == (0, f"{file}: ok, 2 users\n", "")
    assert nsqc("check", file, "a", "publish", "orders.x") == (0, "a: publish orders.x: yes, user a: publish 'orders.*'\n", "")
    assert nsqc("check", file, "a", "consume", "orders.x/billing")[0] == 0
    assert nsqc("check", file, "a", "consume", "orders.x/other") == (1, "a: consume orders.x/other: no, no grant covers it\n", "")
    assert nsqc("check", file, "a", "stats") == (0, "a: stats everything: yes, role dash: stats '*'\n", "")
    assert nsqc("check", file, "a", "admin")[0] == 1
    assert nsqc("check", file, "anonymous", "stats", "t")[0] == 0
    assert nsqc("check", file, "b", "publish", "t") == (1, "", f"nsqc access check: {file} has no user 'b'\n")
    assert nsqc("check", file, "a", "write", "t")[:2] == (2, "")
    assert nsqc("check", file, "a", "consume", "t")[:2] == (2, "")
    assert nsqc("check", file, "a", "publish", "t x")[:2] == (2, "")
    bad = tmp_path / "bad.toml"
    bad.write_text("users = 1")
    code, told, errors = nsqc("check", bad)
    assert (code, told) == (1, "")
    assert errors.startswith(f"nsqc access check: access file {bad}: users must be tables")


@pytest.mark.parametrize("more", [[], ["--lookupd"]])
def test_config_check_reads_it(tmp_path, more):
    config, rules = tmp_path / "nsqc.cfg", tmp_path / "access.toml"
    config.write_text(f'access_file = "{rules}"\n')
    words = [sys.executable, "-m", "nsqc", "config", "check", *more, str(config)]
    rules.write_text("[users.a]")
    assert subprocess.run(words, capture_output=True, timeout=120).returncode == 0
    rules.write_text("[users.a]\npublishes = []")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"{config}: error: access file {rules}: users.a: unknown key 'publishes'" in done.stdout


def test_who(file, nsqc):
    assert nsqc("who", file, "publish", "orders.x") == (0, "root  user root: publish '*'\na     user a: publish 'orders.*'\n", "")
    assert nsqc("who", file, "admin") == (0, "root  user root: admin '*'\n", "")
    assert [found["user"] for found in json.loads(nsqc("who", "--json", file, "stats")[1])] == ["root", "a", "anonymous"]
    assert nsqc("who", file, "read", "orders.x")[1].startswith("root")
    assert nsqc("who", file, "nothing")[0] == 2


def test_edits_keep_the_rest_of_the_file(tmp_path, nsqc):
    path = tmp_path / "access.toml"
    path.write_text('# ours\nanonymous = ["dash"]\n\n[roles.dash]\nstats = ["*"]     # numbers\n\n[users.a] # first\nconsume = [\n  "t/[a]",\n]\n\n[users."b.c"]\npublish = ["x"]\n')
    path.chmod(0o640)
    code, token, errors = nsqc("add", path, "new@x", "--publish", "orders.*", "--consume", "t", "--consume", "u/c", "--role", "dash")
    assert (code, errors) == (0, "")
    rules = read(str(path))
    assert rules.users["new@x"].tokens[0].matches(token.strip().encode())
    assert nsqc("check", path, "new@x", "consume", "u/c")[0] == nsqc("check", path, "new@x", "publish", "orders.x")[0] == 0
    assert nsqc("add", path, "a") == (1, "", f"nsqc access add: {path} has already a user 'a'\n")
    for user in ("a", "b.c", "new@x"):
        first, second = nsqc("rotate", path, user)[1].strip(), nsqc("rotate", path, user)[1].strip()
        tokens = read(str(path)).users[user].tokens
        assert tokens[0].matches(second.encode()) and tokens[1].matches(first.encode())
        assert nsqc("revoke", path, user, "--token", first[5:17])[0] == 0
        assert [one.id for one in read(str(path)).users[user].tokens[:1]] == [second[5:17]]
    only = nsqc("rotate", path, "new@x", "--only")[1].strip()
    assert [one.id for one in read(str(path)).users["new@x"].tokens] == [only[5:17]]
    assert nsqc("revoke", path, "new@x", "--token", "0" * 12)[0] == 1
    assert nsqc("revoke", path, "a")[0] == nsqc("revoke", path, "new@x")[0] == 0
    assert set(read(str(path)).users) == {"b.c"}
    assert nsqc("revoke", path, "a")[0] == 1
    text = path.read_text()
    assert text.startswith('# ours\nanonymous = ["dash"]\n\n[roles.dash]\nstats = ["*"]     # numbers\n')
    assert path.stat().st_mode & 0o777 == 0o640 and list(tmp_path.iterdir()) == [path]


def test_a_new_file_and_files_that_cannot_be_edited(tmp_path, nsqc):
    path = tmp_path / "access.toml"
    assert nsqc("rotate", path, "a")[0] == 1 and not path.exists()
    assert nsqc("add", path, "a", "--stats", "*")[0] == 0
    assert path.stat().st_mode & 0o777 == 0o600 and "a" in read(str(path)).users
    (tmp_path / "access.toml.new").write_text("half of")        # of an edit that was killed
    assert nsqc("add", path, "b")[0] == 0 and set(read(str(path)).users) == {"a", "b"} and list(tmp_path.iterdir()) == [path]
    for text in ('users = {a = {stats = ["*"]}}\n', 'users.a.stats = ["*"]\n', "[users.a", '[users.a]\nstat = []\n'):
        path.write_text(text)
        code, told, errors = nsqc("rotate", path, "a")
        assert (code, told, path.read_text()) == (1, "", text) and errors.startswith("nsqc access rotate: ")
