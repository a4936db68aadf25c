"""Dead letters on the page: redriven and dropped, by channel, all of a topic, or one; and ids of publishes."""

import json
import re

import pytest

from tests.admin.browser import needs_chromium
from tests.admin.conftest import API, address, made, seen
from tests.publishing.support import publisher, remember
from tests.rules.letters import die, waiting
from tests.rules.support import set_rule
from tests.support.daemon import wait_until

DEAD = "orders.dead"


@pytest.fixture
def letters(cluster):
    """Two nodes with three dead letters of one channel and two of another on each, and an admin server."""
    nodes = [cluster.node("--topic-storage=log") for _ in range(2)]
    for node in nodes:
        die(node, "orders", "billing", b"b1", b"b2", b"b3")
        set_rule(node, "post", "mail", dead_letter=DEAD)
        die(node, "post", "mail", b"m1", b"m2")
    cluster.registered(DEAD, *nodes)
    cluster.nodes = nodes
    return nodes


def admin_of(cluster, *flags, **headers):
    admin = cluster.admin(*flags)
    wait_until(lambda: admin.call("GET", f"{API}/topics/{DEAD}", **headers).status == 200)
    return admin


def counts(nodes) -> list[int]:
    return [len(waiting(node, DEAD)) for node in nodes]


@needs_chromium
def test_redriving_and_dropping(cluster, letters, visit):
    admin = admin_of(cluster)
    seen(admin, f"/topics/{DEAD}", lambda data: len(data["dead_letters_of"]) == 2 and len(data["node_rows"]) == 2)
    browser = visit(admin.url)
    page = browser.open("topics/orders/billing")
    page.get_by_text("6 waiting, 6 moved").wait_for()
    page = browser.open(f"topics/{DEAD}")
    dialog = page.locator("dialog[open]")
    # Messages are the letters, with their origin.
    page.get_by_role("link", name="Messages", exact=True).last.click()
    page.locator(".messages summary", has_text="b1").click()
    page.get_by_text("orders/billing: ").wait_for()
    page.locator(".messages > li", has_text="b1").get_by_role("button", name="Redrive").wait_for()
    page = browser.open(f"topics/{DEAD}")
    page.get_by_text("No channel: dead letters wait until they are redriven or dropped.").wait_for()
    assert not page.get_by_role("heading", name="Positions in the log").count()     # hidden: there is none
    # A channel.
    row = page.get_by_role("row", name=re.compile("^orders billing 6 6"))
    row.get_by_role("button", name="Redrive").click()
    assert dialog.get_by_text("3 will be redriven").count() == 2 or wait_until(
        lambda: dialog.get_by_text("3 will be redriven").count() == 2)
    dialog.get_by_role("button", name="Cancel").click()
    assert counts(letters) == [5, 5]
    row.get_by_role("button", name="Redrive").click()
    browser.confirm("Redrive")
    assert browser.toast().count("3 redriven") == 2
    page.get_by_role("row", name=re.compile("^orders billing 0 6")).wait_for()
    assert counts(letters) == [2, 2] and letters[0].channel("orders", "billing")["redriven_count"] == 3
    # One message, on the node that is chosen.
    page = browser.open(f"messages?node={address(letters[1])}&topic={DEAD}&state=history")
    page.locator(".messages summary", has_text="m1").click()
    box = page.locator(".messages > li", has_text="m1")
    box.get_by_role("button", name="Redrive").click()
    browser.confirm("Redrive")
    assert "1 redriven" in browser.toast()
    assert waiting(letters[1], DEAD) == [b"m2"] and counts(letters) == [2, 1]
    box.get_by_role("button", name="Redrive").click()
    browser.confirm("Redrive")
    assert "it was redriven or dropped before" in browser.toast()
    page.locator(".messages summary", has_text="m2").click()
    page.locator(".messages > li", has_text="m2").get_by_role("button", name="Drop").click()
    browser.confirm("Drop", DEAD)
    assert "1 dropped" in browser.toast()
    assert counts(letters) == [2, 0]
    # All; those whose channel is gone stay.
    letters[0].post("/channel/delete?topic=post&channel=mail")
    page = browser.open(f"topics/{DEAD}")
    browser.button("Redrive all").click()
    dialog.get_by_text("2 of post/mail left: the channel does not exist").wait_for()
    browser.confirm("Redrive")
    assert "0 redriven; 2 of post/mail left" in browser.toast()
    browser.button("Drop all").click()
    browser.confirm("Drop", DEAD)
    assert "2 dropped" in browser.toast()
    assert counts(letters) == [0, 0]
    assert not [each for each in browser.complaints if "Security Policy" in each]


@needs_chromium
@pytest.mark.parametrize(("grants", "buttons"), [
    ('admin = ["orders.dead"]', (False, True)), ('admin = ["*"]', (False, True)),
    ('admin = ["*"]\npublish = ["*"]', (True, True)), ("", (False, False))])
def test_buttons_are_those_of_the_grants(cluster, letters, visit, tmp_path, grants, buttons):
    token, stored = made()
    file = tmp_path / "access.toml"
    file.write_text(f'[users.team]\ntokens = ["{stored}"]\nstats = ["*"]\nread = ["*"]\n{grants}\n')
    headers = {"Authorization": f"Bearer {token}"}
    admin = admin_of(cluster, f"--access-file={file}", **headers)
    browser = visit(admin.url, extra_http_headers={"Authorization": f"Bearer {token}"})
    page = browser.open(f"topics/{DEAD}")
    page.get_by_role("row", name=re.compile("^orders billing")).wait_for()
    wait_until(lambda: (browser.button("Redrive all").is_visible(), browser.button("Drop all").is_visible()) == buttons)
    row = page.get_by_role("row", name=re.compile("^orders billing"))
    wait_until(lambda: (row.get_by_role("button", name="Redrive").count(), row.get_by_role("button", name="Drop").count())
               == buttons)
    page = browser.open(f"messages?topic={DEAD}&state=history")
    page.locator(".messages summary").first.click()
    box = page.locator(".message").first
    box.wait_for()
    assert (box.get_by_role("button", name="Redrive").count(), box.get_by_role("button", name="Drop").count()) == buttons
    body = {"topic": DEAD, "confirm": DEAD}
    for action, permitted in zip(("redrive", "drop"), buttons, strict=True):
        answer = admin.call("POST", f"{API}/actions", {**body, "action": action}, **headers)
        assert answer.status == (200 if permitted else 403), answer
    assert counts(letters) == ([0, 0] if any(buttons) else [5, 5])


def test_what_is_asked_wrongly(cluster, letters):
    admin = admin_of(cluster)
    for body, word in (({"action": "drop", "topic": DEAD}, "NOT_CONFIRMED"),
                       ({"action": "redrive", "topic": DEAD, "channel": "c"}, "INVALID_CHANNEL"),
                       ({"action": "redrive", "topic": DEAD, "offset": -1}, "INVALID_CHANNEL")):
        answer = admin.call("POST", f"{API}/actions", body)
        assert (answer.status, answer.json["message"].split(" - ")[0]) == (400, word)
    # What the nodes refuse is a result of each of them.
    results = admin.call("POST", f"{API}/actions", {"action": "redrive", "topic": DEAD, "origin": "a b"}).json["results"]
    assert [result["message"].split(" - ")[0] for result in results] == ["INVALID_ARG_ORIGIN"] * 2
    results = admin.call("POST", f"{API}/actions", {"action": "redrive", "topic": "none"}).json["results"]
    assert results == []


def test_a_memory_topic_refuses(cluster):
    node = cluster.node()
    die(node, "orders", "billing", b"b1")
    cluster.registered(DEAD, node)
    admin = admin_of(cluster)
    result = admin.call("POST", f"{API}/actions", {"action": "redrive", "topic": DEAD}).json["results"][0]
    assert not result["ok"] and result["message"].startswith("MISSING_ARG_SOURCE - ")


@needs_chromium
def test_publish_ids(cluster, visit):
    node = cluster.node()
    remember(node, "orders", dedupe_ids=2)
    client = publisher(node)
    for name in ("a", "b", "b", "c"):
        client.ok(f"PUB orders {name}", b"x")
    cluster.registered("orders", node)
    admin = cluster.admin()
    data = seen(admin, "/topics/orders", lambda data: data["deduplicated"] == 1)
    assert (data["publish_ids"], data["forgotten_ids"]) == (2, 1)
    browser = visit(admin.url)
    page = browser.open("topics/orders")
    page.get_by_text("Publish ids: 2 remembered, 1 repeats not stored, 1 forgotten early.").wait_for()
    node.post("/topic/create?topic=plain")
    assert seen(admin, "/topics/plain", lambda data: json.dumps(data))["publish_ids"] is None
