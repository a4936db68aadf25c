"""Access files: their rules, defaults and errors."""

import pytest

from nsqc.access.needs import ADMIN, CHANNEL, CONSUME, KNOWN, NODE, PUBLISH, READ, STATS, TOPIC, Need
from nsqc.access.rules import AccessError, Limits, make, parse, read

TOKEN = str(make()[1])
OTHER = str(make()[1])


def test_a_whole_file():
    rules = parse(f"""
anonymous = ["dash"]
[roles.dash]
stats = ["*"]
[roles.team]
publish = ["team.*"]
admin = ["team.*"]
[users.ci]
tokens = ["{TOKEN}", "{OTHER}"]
certificates = ["ci.example"]
roles = ["team"]
publish = ["builds"]
consume = ["team.*/ci*", "builds"]
max_connections = 3
max_messages_per_second = 4
max_bytes_per_second = 5
max_topics = 6
[nodes."10.0.0.0/8"]
topics = ["team.*"]
[nodes."2001:db8::1"]
topics = ["*"]
""")
    user = rules.users["ci"]
    assert user.limits == Limits(3, 4, 5, 6)
    assert [rules.tokens[token.id][1] is user for token in user.tokens] == [True, True]
    assert rules.certificates == {"ci.example": user}
    assert user.reason(Need((PUBLISH,), TOPIC), "builds") == "user ci: publish 'builds'"
    assert user.reason(Need((PUBLISH,), TOPIC), "team.a") == "role team: publish 'team.*'"
    assert not user.reason(Need((PUBLISH,), TOPIC), "other")
    assert not user.reason(Need((READ,), TOPIC), "builds")
    assert user.reason(Need((CONSUME,), CHANNEL), "team.a", "ci-1")
    assert user.reason(Need((CONSUME,), CHANNEL), "builds", "anything")
    assert not user.reason(Need((CONSUME,), CHANNEL), "team.a", "x")
    assert user.reason(Need((ADMIN,), CHANNEL), "team.a", "x")
    # The node as a whole needs a grant over everything.
    assert not user.reason(Need((ADMIN,), NODE))
    assert rules.anonymous.reason(Need((STATS,), NODE))
    assert rules.anonymous.reason(Need((STATS,), TOPIC))
    assert user.reason(KNOWN)
    assert rules.may_announce("10.1.2.3", "n", "team.a")
    assert not rules.may_announce("10.1.2.3", "n", "other")
    assert rules.may_announce("2001:db8::1", "n", "other")
    assert not rules.may_announce("192.0.2.1", "n", "team.a")
    assert not rules.may_announce("", "n", "team.a")


def test_without_nodes_all_may_announce():
    assert parse("").may_announce("192.0.2.1", "n", "x") and parse("").may_be_listed("192.0.2.1", "n")
    assert not parse("").is_authorised("192.0.2.1", "192.0.2.1")
    assert not parse('[nodes."10.0.0.1"]').may_announce("10.0.0.1", "n", "x")


def test_the_addresses_that_nodes_announce():
    rules = parse('[nodes."10.0.0.0/8"]\ntopics = ["a"]\n[nodes."192.0.2.0/24"]\ntopics = ["b"]\naddresses = ["*.nsq", "10.9.0.0/16"]')
    seen = {(source, announced): (rules.may_be_listed(source, announced), rules.is_authorised(source, announced),
                                  rules.may_announce(source, announced, "a"), rules.may_announce(source, announced, "b"))
            for source in ("10.1.1.1", "192.0.2.1", "172.16.0.1") for announced in ("10.9.1.1", "x.nsq", "evil.example")}
    assert seen == {
        ("10.1.1.1", "10.9.1.1"): (True, True, True, False), ("10.1.1.1", "x.nsq"): (True, False, True, False),
        ("10.1.1.1", "evil.example"): (True, False, True, False),
        ("192.0.2.1", "10.9.1.1"): (True, True, False, True), ("192.0.2.1", "x.nsq"): (True, True, False, True),
        ("192.0.2.1", "evil.example"): (False, False, False, False), **{
            ("172.16.0.1", announced): (False, False, False, False) for announced in ("10.9.1.1", "x.nsq", "evil.example")}}
    with pytest.raises(AccessError, match="addresses: 'a b' is not a host"):
        parse('[nodes."10.0.0.0/8"]\naddresses = ["a b"]')


@pytest.mark.parametrize(("scope", "topic", "channel", "covered"), [
    ("*", "a", "", True), ("a", "a", "", True), ("a", "ab", "", False), ("a?", "ab", "", True), ("[ab]", "b", "", True), ("a", "b", "", False),
    ("a/c", "a", "", False), ("a/c", "a", "c", True), ("a/c", "a", "d", False), ("a/*", "a", "d", True), ("*/c", "x", "c", True), ("a", "a", "c", True),
    ("a", "a#ephemeral", "", False), ("a*", "a#ephemeral", "", True), ("a.b", "a-b", "", False), ("a\n", "a", "", None), ("", "a", "", None),
    ("a/", "a", "", None), ("a/b/c", "a", "b", None), ("a b", "a", "", None), ("/c", "a", "c", None),
])
def test_scopes(scope, topic, channel, covered):
    text = f'[users.u]\nadmin = ["{scope}"]'.replace("\n\"", '\\n"')
    if covered is None:
        with pytest.raises(AccessError, match=r"TOPIC/CHANNEL|must be a list of texts"):
            parse(text)
        return
    need = Need((ADMIN,), CHANNEL if channel else TOPIC)
    assert bool(parse(text).users["u"].reason(need, topic, channel)) is covered


def test_stars_match_in_bounded_time():
    """Clients choose names, so they may contain anything."""
    user = parse('[users.u]\nadmin = ["' + "*a" * 30 + '*b"]').users["u"]
    assert not user.reason(Need((ADMIN,), TOPIC), "a" * 64)


@pytest.mark.parametrize(("text", "error"), [
    ("user = 1", "unknown key 'user'; there are anonymous, roles, users, nodes"),
    ("users = 1", r"users must be tables such as \[users.NAME\]"),
    ("[users]\na = 1", r"users.a must be a table, \[users.a\]"),
    ("[users.a]\npublishes = []", "users.a: unknown key 'publishes'; there are tokens, "),
    ("[users.a]\npublish = 'x'", "users.a: publish must be a list of texts"),
    ("[users.a]\npublish = [1]", "users.a: publish must be a list of texts"),
    ("[users.a]\nroles = ['x']", "users.a: unknown role 'x'"),
    ("[roles.a]\ntokens = []", "roles.a: unknown key 'tokens'"),
    ("anonymous = ['x']", "users.anonymous: unknown role 'x'"),
    ("[users.anonymous]", "users.anonymous: this name stands for clients without a token"),
    ("[users.a]\nmax_connections = -1", r"users.a: max_connections must be a non-negative integer \(0: no limit\)"),
    ("[users.a]\nmax_topics = 1.5", "users.a: max_topics must be a non-negative integer"),
    ("[users.a]\nmax_topics = true", "users.a: max_topics must be a non-negative integer"),
    ("[users.'a b']", "users.'a b': names have up to 64 letters"),
    ("[nodes.here]", "nodes.'here': not an address or a network"),
    ("[nodes.'10.0.0.0/8']\ntopics = ['a/b']", "nodes.'10.0.0.0/8': topics have no channels"),
    (f"[users.a]\ntokens = ['{TOKEN}']\n[users.b]\ntokens = ['{TOKEN}']", "users.b: a token with id [0-9a-f]+ is also one of a"),
    ("[users.a]\ncertificates = ['x']\n[users.b]\ncertificates = ['x']", "users.b: certificate 'x' is also one of a"),
])
def test_errors(text, error):
    with pytest.raises(AccessError, match=error):
        parse(text)


def test_files(tmp_path):
    path = tmp_path / "access.toml"
    with pytest.raises(AccessError, match=rf"access file {path}: No such file"):
        read(str(path))
    path.write_bytes(b"\xff")
    with pytest.raises(AccessError, match=rf"access file {path}: not UTF-8"):
        read(str(path))
    path.write_text("a = [\n1\n")
    with pytest.raises(AccessError, match=rf"access file {path}: not TOML"):
        read(str(path))


def test_a_start_with_a_bad_file(start, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text("users = 1")
    with pytest.raises(AssertionError, match="users must be tables"):
        start(f"--access-file={path}")


def test_a_file_that_others_can_write(start, access):
    access.path.chmod(0o666)
    start(access.flag).wait_for("WARNING: ACCESS: .*is writable by group or others")
