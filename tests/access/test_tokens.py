"""Tokens, and the cost of wrong ones."""

import asyncio
import hmac

import pytest

from nsqc.access import keeper
from nsqc.access import rules as tokens
from nsqc.access.keeper import TooManyWrong, Verifier
from nsqc.access.rules import TokenError, id_of, make, parse, parse_hash


@pytest.fixture(scope="module")
def made():
    return make()


def test_a_token_and_its_hash(made):
    token, stored = made
    assert len(token) == 61
    assert id_of(token.encode()) == stored.id
    assert token not in str(stored)
    assert parse_hash(str(stored)) == stored
    assert stored.matches(token.encode())
    assert not stored.matches(token.encode()[:-1] + b"!")
    assert make()[0] != token
    # Salted: the same token hashes differently each time.
    assert stored._replace(salt=b"\0" * 16).matches(token.encode()) is False


def test_hashes_are_compared_in_constant_time(made, monkeypatch):
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append((one, other)) or one == other)
    assert made[1].matches(made[0].encode())
    assert compared == [(made[1].digest, made[1].digest)]


@pytest.mark.parametrize("text", [b"", b"nsqc_", b"nsqc_0123456789ab_short", b"nsqc_0123456789AB_" + b"x" * 43, b"nsqc_0123456789ab_" + b"x" * 44,
                                  b"nsqc_0123456789ab_" + b"\xff" * 43, b"nsqc_0123456789ab_" + b"x" * 43 + b"\n"])
def test_what_is_no_token(text):
    assert id_of(text) is None


@pytest.mark.parametrize("change", [lambda text: "", lambda text: text[1:], lambda text: text.replace(":14:8:1:", ":1:8:1:"),
                                    lambda text: text.replace(":14:8:1:", ":19:8:1:"), lambda text: text.replace(":14:8:1:", ":14:99:1:"),
                                    lambda text: text.replace(":14:8:1:", ":14:8:0:"), lambda text: text + "x", lambda text: "plain-secret"])
def test_what_is_no_hash(made, change):
    with pytest.raises(TokenError) as error:
        parse_hash(change(str(made[1])))
    assert "plain" not in str(error.value)
    assert "nsqc access token" in str(error.value)


# ---------------------------------------------------------------------- wrong tokens


def rules(*hashes):
    return parse("\n".join(f'[users.u{number}]\ntokens = ["{stored}"]\npublish = ["*"]' for number, stored in enumerate(hashes)))


def wrong(stored, number: int) -> bytes:
    """A token with the id of a real one."""
    return f"nsqc_{stored.id}_{number:043d}".encode()


def test_a_flood_costs_one_check_at_a_time(made, monkeypatch):
    """Wrong tokens make their address wait; known clients continue."""
    monkeypatch.setattr(keeper, "FIRST_DELAY_S", 1000.0)
    monkeypatch.setattr(keeper, "LONGEST_DELAY_S", 1000.0)
    token, stored = made[0].encode(), made[1]

    async def work():
        checked = Verifier(asyncio.get_running_loop())
        known = rules(stored)
        assert checked.known(token, known) is None
        assert (await checked.check(token, "192.0.2.1", known))[1].name == "u0"
        assert await checked.check(wrong(stored, 0), "192.0.2.1", known) is None
        flood = [asyncio.create_task(checked.check(wrong(stored, number), "192.0.2.1", known)) for number in range(1, 200)]
        done, waiting = await asyncio.wait(flood, timeout=0.5)
        assert len(waiting) == keeper.MOST_WAITING
        assert all(isinstance(task.exception(), TooManyWrong) for task in done)
        assert checked.checks == 2
        # Known tokens skip the check, from any address.
        assert checked.known(token, known)[1].name == "u0"
        # Other addresses are not delayed.
        assert await checked.check(wrong(stored, 1), "192.0.2.2", known) is None
        assert checked.checks == 3
        # Addresses of one IPv6 network count as one.
        assert await checked.check(wrong(stored, 2), "2001:db8::1", known) is None
        other = asyncio.create_task(checked.check(wrong(stored, 3), "2001:db8::ffff", known))
        assert not (await asyncio.wait([other], timeout=0.2))[0]
        for task in [*flood, other]:
            task.cancel()
        checked.close()

    asyncio.run(work())


def test_a_wrong_token_is_remembered(made, monkeypatch):
    monkeypatch.setattr(keeper, "FIRST_DELAY_S", 0.0)

    async def work():
        checked = Verifier(asyncio.get_running_loop())
        for _ in range(5):
            assert await checked.check(wrong(made[1], 1), "192.0.2.1", rules(made[1])) is None
        assert checked.checks == 1
        # An unknown id costs no check.
        assert await checked.check(b"nsqc_000000000000_" + b"x" * 43, "192.0.2.1", rules(made[1])) is None
        assert await checked.check(b"anything", "192.0.2.1", rules(made[1])) is None
        assert checked.checks == 1
        checked.close()

    asyncio.run(work())


def test_caches_are_bounded(made, monkeypatch):
    monkeypatch.setattr(keeper, "FIRST_DELAY_S", 0.0)
    monkeypatch.setattr(keeper, "MOST_TOKENS", 3)
    monkeypatch.setattr(keeper, "MOST_ADDRESSES", 4)

    async def work():
        checked = Verifier(asyncio.get_running_loop())
        for number in range(10):
            await checked.check(wrong(made[1], number), f"192.0.2.{number}", rules(made[1]))
        assert len(checked._wrong) <= 3
        assert len(checked._addresses) <= 4
        checked.close()

    asyncio.run(work())


def test_tokens_are_not_kept(made):
    async def work():
        checked = Verifier(asyncio.get_running_loop())
        await checked.check(made[0].encode(), "", rules(made[1]))
        assert made[0].encode() not in checked._known
        assert made[0] not in repr(vars(checked))
        checked.close()

    asyncio.run(work())


# ---------------------------------------------------------------------- a real daemon


def test_a_flood_against_a_daemon(start, access):
    """The publisher beside it is always served."""
    node = start(access.flag, "--audit-level=off")
    stored = parse_hash(access.hashes["root"])
    with node.wire() as publisher:
        publisher.request("POST", "/pub?topic=t", b"x", access.bearer("root"))
        assert publisher.reply().status == 200
        floods = [node.wire() for _ in range(60)]
        for number, wire in enumerate(floods):
            wire.request("GET", "/stats", headers=f"Authorization: Bearer {wrong(stored, number).decode()}\r\n")
        for _ in range(200):
            publisher.request("POST", "/pub?topic=t", b"x", access.bearer("root"))
            assert publisher.reply().status == 200
        statuses = [wire.reply().status for wire in floods[keeper.MOST_WAITING + 1:]]
        assert set(statuses) <= {401, 429}
        assert 429 in statuses
        for wire in floods:
            wire.sock.close()
    client = node.connect()
    client.command("AUTH", access.tokens["root"].encode())
    assert client.frame()[0] == 0
    assert "nsqc_" not in node.log


def test_secrets_appear_nowhere(start, access):
    node = start(access.flag)
    token = access.tokens["root"]
    pages = [node.call("GET", path, headers=access.bearer("root")).body for path in (
        "/config/access_file", "/config/audit_file", "/debug/pprof/cmdline", "/debug/pprof/goroutine", "/stats", "/metrics", "/info")]
    client = node.connect()
    client.command("AUTH", (token[:-1] + "!").encode())
    assert client.frame()[0] == 1
    node.call("GET", "/stats", headers=f"Authorization: Bearer {token}x\r\n")
    node.call("GET", "/stats", headers=f"Authorization: Digest {token}\r\n")
    assert node.stop() == 0
    secret = token.split("_", 2)[2][:20]      # may have underscores, too
    for text in [node.log, *(page.decode() for page in pages)]:
        assert secret not in text
        assert "scrypt:" not in text


def test_they_are_in_no_error(tmp_path):
    from nsqc.access.rules import AccessError, read
    path = tmp_path / "access.toml"
    for text in ['[users.a]\ntokens = ["hunter2"]', 'tokens = "hunter2', '[users.a]\ntokens = "hunter2"', '[users.a]\ntokens = ["ok" "hunter2"]']:
        path.write_text(text)
        with pytest.raises(AccessError) as error:
            read(str(path))
        assert "hunter2" not in str(error.value)
        assert str(path) in str(error.value)


def test_the_parameters_are_not_weaker_than_documented():
    assert (tokens._LOG_N, tokens._R, tokens._P) == (14, 8, 1)
