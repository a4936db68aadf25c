"""A node that does not answer: its last known values stay, with their age, and nothing about it misleads."""

from tests.admin.browser import needs_chromium
from tests.admin.conftest import API, address, seen
from tests.support.daemon import wait_until


def killed(cluster, two):
    """The admin server, after the second node was killed with the only message of `only` and one of `t`."""
    other = two[1]
    other.post("/topic/create?topic=only")
    other.post("/channel/create?topic=only&channel=c")
    other.post("/pub?topic=only", b"x")
    cluster.registered("only", other)
    admin = cluster.admin()
    seen(admin, "/overview", lambda data: data["totals"]["depth"] == 3 and data["totals"]["answering"] == 2)
    other.kill()
    seen(admin, "/overview", lambda data: data["totals"]["answering"] == 1)
    return admin


def test_the_last_known_values_stay_with_their_age(cluster, two):
    other = two[1]
    admin = killed(cluster, two)
    data = admin.get(f"{API}/overview")
    assert (data["totals"]["depth"], data["totals"]["nodes"]) == (3, 2)
    [row] = [each for each in data["nodes"] if each["address"] == address(other)]
    assert (row["topics"], row["depth"], row["clients"], row["answer_ms"]) == (2, 2, 0, None) and row["seen_at"]
    assert row["nsqc"] and row["memory"] and row["disk_free"] and row["cpu"] is None
    assert row["error"] == f"cannot reach {address(other)}: connection refused"
    topic = admin.get(f"{API}/topics/only")
    assert (topic["depth"], topic["stale"], topic["nodes"]) == (1, 1, 1)
    [part] = topic["node_rows"]
    assert part["node"] == address(other) and part["seen_at"] == row["seen_at"] and address(other) in topic["errors"]
    channel = admin.get(f"{API}/topics/only/c")
    assert [part["depth"] for part in channel["node_rows"]] == [1] and channel["node_rows"][0]["seen_at"]
    assert [each["name"] for each in admin.get(f"{API}/nodes/{address(other)}")["topic_rows"]] == ["only", "t"]
    lookup = admin.get(f"{API}/lookup")
    assert lookup["without_nodes"] == [] and lookup["missing"] == [address(other)]
    rules = {each["rule"] for each in admin.get(f"{API}/attention")["attention"]}
    assert "node-missing" in rules and not rules & {"stuck", "no-consumer"}
    other.start(f"--tcp-address=127.0.0.1:{other.tcp_port}", f"--http-address={address(other)}")
    seen(admin, "/overview", lambda data: data["totals"]["answering"] == 2)
    assert all("seen_at" not in each for each in admin.get(f"{API}/topics/t")["node_rows"])


def test_a_node_that_died_since_the_last_poll(cluster, two):
    """Its last known values stay from the first question that it does not answer."""
    other = two[1]
    admin = cluster.admin("--poll-interval=1m")
    seen(admin, "/topics/t", lambda data: len(data["node_rows"]) == 2)
    other.kill()
    for path in ("topics/t", "topics/t/c"):
        data = admin.get(f"{API}/{path}")
        [part] = [each for each in data["node_rows"] if "seen_at" in each]
        assert (part["node"], part["depth"]) == (address(other), 1) and address(other) in data["errors"]
    row = admin.get(f"{API}/nodes/{address(other)}")
    assert [each["name"] for each in row["topic_rows"]] == ["t"] and row["seen_at"] and "refused" in row["error"]


def test_a_pause_shows_at_once(cluster, two):
    """Without waiting for a poll, which may be minutes away."""
    admin = cluster.admin("--poll-interval=1m")
    seen(admin, "/topics/t", lambda data: len(data["node_rows"]) == 2)
    for action, count in (("pause", 2), ("unpause", 0)):
        assert admin.call("POST", f"{API}/actions", {"action": action, "topic": "t", "channel": "c"}).status == 200
        assert admin.get(f"{API}/topics/t/c")["paused"] == count
        assert admin.call("POST", f"{API}/actions", {"action": action, "topic": "t"}).status == 200
        assert admin.get(f"{API}/topics/t")["paused"] == count


def test_unknown_addresses_get_the_page(cluster, two):
    admin = cluster.admin()
    for path in ("/no/such/page", "/no/such/", "/%E0%A4"):
        answer = admin.call("GET", path, Accept="text/html,*/*")
        assert answer.status == 200 and b"<!doctype html>" in answer.body
    answer = admin.call("GET", "/topics/t/", Accept="text/html,*/*")
    assert answer.status in (301, 307) and answer.headers["Location"] == "/topics/t"
    for path in ("/no/such/page", "/api/v1/nothing"):
        assert admin.call("GET", path).status == 404
    assert admin.call("GET", "/api/v1/nothing", Accept="text/html").status == 404


@needs_chromium
def test_the_page_says_so(cluster, two, visit):
    other = two[1]
    admin = killed(cluster, two)
    browser = visit(admin.url)
    browser.open().get_by_text("1 of 2 nodes answer").wait_for()
    browser.open("topics/only").get_by_text("0 of 1 nodes answer, the rest as of").wait_for()
    page = browser.open(f"nodes/{address(other)}")
    page.get_by_text("missing, as of").first.wait_for()
    assert not browser.button("Drain…").is_visible()
    cluster.lookupd.call("POST", "/topic/create?topic=orphan")
    page = browser.open("lookup")
    page.get_by_text("These topics may be on servers that do not answer").wait_for()
    assert browser.button("Delete…").count() == 0
    other.start(f"--tcp-address=127.0.0.1:{other.tcp_port}", f"--http-address={address(other)}")
    wait_until(lambda: any(each["http_port"] == other.http_port for each in cluster.lookupd.get("/nodes")["producers"]))
    browser.button("Delete…").wait_for()
    # The page of what was deleted is left for its parent.
    browser.open("topics/t/c")
    browser.button("Delete…").click()
    browser.confirm("Delete", "c")
    page.wait_for_url("**/topics/t")
    # A poll may have met the deletion.
    assert not [each for each in browser.complaints if "404" not in each]


@needs_chromium
def test_publishing_from_the_page_and_names_that_cannot_be(cluster, two, visit):
    admin = cluster.admin()
    seen(admin, "/topics/t", lambda data: len(data["node_rows"]) == 2)
    browser = visit(admin.url)
    page = browser.open("topics/t")
    browser.button("Publish…").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Body").fill("from here")
    dialog.get_by_label("On node").select_option(address(two[1]))
    browser.confirm("Publish")
    assert "done" in browser.toast()
    assert two[1].channel("t", "c")["depth"] == 2
    browser.button("New channel…").click()
    create = dialog.get_by_role("button", name="Create")
    dialog.get_by_label("Channel").fill("no name")
    assert create.is_disabled()
    dialog.get_by_label("Channel").fill("a-name.1#ephemeral")
    assert create.is_enabled()
