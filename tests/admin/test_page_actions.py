"""The page in a real browser: actions and views that tests/admin/test_page.py does not click."""

import json
import re
import subprocess

from tests.admin.browser import needs_chromium
from tests.admin.conftest import address, log_topic, made, seen
from tests.support.daemon import wait_until

pytestmark = needs_chromium


def drain_state(node):
    return json.loads(node.http("GET", "/drain")[1])["state"]


def test_a_topic(cluster, fleet, visit):
    """New channel, rules, empty and delete; a cancelled dialog changes nothing."""
    browser = visit(fleet.url)
    page = browser.open("topics/orders")
    browser.button("New channel").click()
    page.get_by_label("Channel", exact=True).fill("audit")
    browser.confirm("Create")
    assert browser.toast().count("done") == 6      # topic and channel, on both nodes and the lookup server
    page.get_by_role("link", name="audit").wait_for()
    assert cluster.other.channel("orders", "audit")["depth"] == 0
    browser.button("Pause", exact=True).click()
    assert "done" in browser.toast()
    page.locator(".badge", has_text="paused").first.wait_for()
    browser.button("Unpause").click()
    browser.toast()
    browser.button("Empty").click()
    page.locator("dialog[open]").get_by_role("button", name="Cancel").click()
    browser.button("Empty").click()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0 and page.locator(".toast").count() == 0
    browser.button("Empty").click()
    browser.confirm("Empty", "orders")
    assert "done" in browser.toast()
    browser.button("Delete").click()
    browser.confirm("Delete", "orders")
    assert "done" in browser.toast()
    page.get_by_role("heading", name="Topics", level=1).wait_for()      # the parent of what is gone
    assert "orders" not in [topic["topic_name"] for node in (cluster.one, cluster.other) for topic in node.stats()["topics"]]


def test_rules_of_a_topic(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open("topics/audit")
    browser.button("Rules").click()
    dialog = page.locator("dialog[open]")
    # The topic is a log on one node only, so the nodes differ.
    dialog.get_by_text("Nodes differ: ").first.wait_for()
    assert dialog.get_by_label("storage").input_value() == ""
    dialog.get_by_label("retain_time").fill("36h")
    browser.confirm("Save")
    assert "done" in browser.toast()
    for node in (cluster.one, cluster.other):
        assert json.loads(node.http("GET", "/topic/rules?topic=audit")[1])["retain_time"] == "36h0m0s"
    # Undoes the changes.
    browser.button("Rules").click()
    wait_until(lambda: page.locator("dialog[open]").get_by_label("retain_time").input_value() == "36h0m0s" or (
        page.keyboard.press("Escape"), page.wait_for_timeout(300), browser.button("Rules").click()) is None)
    dialog.get_by_label("retain_time").fill("")
    browser.confirm("Save")
    browser.toast()
    assert json.loads(cluster.one.http("GET", "/topic/rules?topic=audit")[1])["retain_time"] == "0s"
    browser.button("Rules").click()
    browser.confirm("Save")
    assert "nothing was changed" in browser.toast()


def test_rules_of_a_channel_and_dead_letters(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open("topics/orders/shipping")
    page.get_by_text("None: it delivers like a channel of nsqd.").wait_for()
    browser.button("Rules").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("max_attempts").fill("1")
    dialog.get_by_label("ordered").select_option("true")
    dialog.get_by_label("requeue_delay").fill("1s")
    browser.confirm("Save")
    assert browser.toast().count("done") == 2
    for node in (cluster.one, cluster.other):
        rules = json.loads(node.http("GET", "/channel/rules?topic=orders&channel=shipping")[1])
        assert (rules["max_attempts"], rules["ordered"], rules["requeue_delay"]) == (1, True, "1s")
    page.get_by_role("row", name="max_attempts 1 all").wait_for()
    page.get_by_text("Dead letters: 0 moved → orders.dead").wait_for()
    # A value that the nodes refuse: each reports its reason.
    browser.button("Rules").click()
    dialog.get_by_label("requeue_delay").fill("soon")
    browser.confirm("Save")
    assert "requeue_delay" in browser.toast()
    # The first dead letter creates the topic, and a link appears.
    consumer = cluster.one.connect().sub("orders", "shipping", 1)
    consumer.send(b"REQ " + consumer.message().id + b" 0\n")
    page.get_by_role("link", name="orders.dead").click()
    page.wait_for_url("**/topics/orders.dead")
    page.get_by_role("heading", name="Dead letters of").wait_for()
    page.get_by_role("row", name="orders shipping – 1").get_by_role("link", name="orders", exact=True).click()
    page.wait_for_url("**/topics/orders")
    page.get_by_role("link", name="orders.dead").wait_for()


def test_removing_a_topic_from_a_node(cluster, fleet, visit):
    """From the topic's page and from the node's; lookup servers keep a tombstone."""
    browser = visit(fleet.url)
    page = browser.open("topics/orders")
    row = page.get_by_role("row", name=re.compile(re.escape(address(cluster.other))))
    row.get_by_role("button", name="Remove").click()
    browser.confirm("Remove", "orders")
    assert "done" in browser.toast()
    assert cluster.other.stats()["topics"] == [] and len(cluster.one.stats()["topics"]) == 2
    page = browser.open(f"nodes/{address(cluster.one)}")
    page.get_by_role("row", name=re.compile("^orders")).get_by_role("button", name="Remove").click()
    browser.confirm("Remove", "orders")
    browser.toast()
    assert [topic["topic_name"] for topic in cluster.one.stats()["topics"]] == ["audit"]


def test_a_drain(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open(f"nodes/{address(cluster.one)}")
    browser.button("Drain").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Wait for at most").fill("100s")
    dialog.get_by_label("Stay drained").check()
    browser.confirm("Drain", address(cluster.one))
    assert "done" in browser.toast()
    assert drain_state(cluster.one) != "serving"
    browser.button("Undo drain").click()
    assert "done" in browser.toast()
    wait_until(lambda: drain_state(cluster.one) == "serving")
    browser.button("Drain…").wait_for()


def test_nodes_and_pages_of_topics(cluster, fleet, visit):
    for number in range(120):
        cluster.one.post(f"/topic/create?topic=many-{number:03}")
    seen(fleet, "/topics", lambda data: data["total"] == 122)
    browser = visit(fleet.url)
    page = browser.open("topics")
    pager = page.get_by_role("navigation", name="Pages")
    pager.get_by_text("1–50 of 122").wait_for()
    assert pager.get_by_role("button", name="Previous").is_disabled()
    for text in ("51–100 of 122", "101–122 of 122"):
        pager.get_by_role("button", name="Next").click()
        pager.get_by_text(text).wait_for()
    assert pager.get_by_role("button", name="Next").is_disabled()
    page.reload()
    pager.get_by_text("101–122 of 122").wait_for()
    page.get_by_label("Filter by name").fill("many-11")
    page.get_by_role("heading", name="10 topics").wait_for()
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("link", name=address(cluster.one)).click()
    page.get_by_role("heading", name=address(cluster.one), level=1).wait_for()
    page.get_by_text("1–50 of 122").wait_for()
    page.get_by_role("button", name="Next").click()
    page.get_by_text("51–100 of 122").wait_for()
    page.get_by_label("Filter topics").fill("orders")
    wait_until(lambda: page.locator("tbody tr").count() == 1)
    page.get_by_role("link", name="orders").click()
    page.get_by_role("heading", name="orders", level=1).wait_for()
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("heading", name="Nodes", level=1).wait_for()
    page.get_by_role("button", name="Depth").click()
    assert page.get_by_role("columnheader", name="Depth").get_attribute("aria-sort") == "descending"


def test_lookup(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open("lookup")
    browser.button("New topic").click()
    page.get_by_label("Topic", exact=True).fill("orphan")
    page.get_by_label("Channel (optional)").fill("c")
    browser.confirm("Create")
    assert "done" in browser.toast()
    page.get_by_role("row", name="orphan").get_by_role("button", name="Delete").click()
    browser.confirm("Delete", "orphan")
    assert "done" in browser.toast()
    page.get_by_text("Every topic has a node.").wait_for()
    assert set(cluster.lookupd.get("/topics")["topics"]) == {"audit", "orders"}


def test_a_preview_that_fails(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open("topics/audit/c")
    browser.button("Move").click()
    dialog = page.locator("dialog[open]")
    place = dialog.get_by_label("To: beginning")
    for to, text in (("99", "offset 99 does not exist: the log has 0 to 20"), ("yesterday", "'yesterday' is not a place in the log"),
                     ("end", "20 unfinished messages will be left out")):
        place.fill(to)
        place.blur()
        dialog.get_by_text(text).wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    assert cluster.one.channel("audit", "c")["depth"] == 20


def messages_of(browser, cluster, query):
    page = browser.open(f"messages?node={address(cluster.one)}&{query}")
    page.locator(".messages summary").first.wait_for()
    return page


def test_ways_through_messages(cluster, fleet, visit):
    for number in range(100):
        cluster.one.post("/pub?topic=audit", json.dumps({"number": 20 + number}).encode())
    cluster.one.post("/pub?topic=orders&defer=600000", b"later")
    browser = visit(fleet.url)
    page = messages_of(browser, cluster, "topic=audit&state=history")
    rows = page.locator(".messages > li")
    assert rows.count() == 50
    browser.button("More").click()
    wait_until(lambda: rows.count() == 100)
    browser.button("More").click()
    wait_until(lambda: rows.count() == 120)
    page.get_by_label("From offset or time").fill("118")
    browser.button("Show").click()
    wait_until(lambda: rows.count() == 2)
    page.wait_for_url("**from=118**")
    page.get_by_label("From offset or time").fill("")
    page.get_by_label("Containing").fill('"number": 7')
    browser.button("Show").click()
    wait_until(lambda: rows.count() == 11)
    page.get_by_text("11 matches in 120 messages looked at").wait_for()
    # Another topic and state, chosen in the form, which suggests names.
    page.get_by_label("Containing").fill("")
    page.get_by_label("Topic").fill("ord")
    wait_until(lambda: page.locator("#topic-names option").count() == 1)
    page.get_by_label("Topic").fill("orders")
    page.get_by_label("Show").select_option("in_flight")
    page.get_by_label("Channel").fill("bil")
    wait_until(lambda: page.locator("#channel-names option").count() == 1)
    page.get_by_label("Channel").fill("billing")
    browser.button("Show").click()
    wait_until(lambda: rows.count() == 1)
    rows.first.click()
    page.locator(".message dt", has_text="Client").wait_for()
    page.get_by_label("Channel").fill("shipping")
    page.get_by_label("Show").select_option("deferred")
    browser.button("Show").click()
    wait_until(lambda: page.locator(".messages .preview").all_inner_texts() == ["later"])
    page.get_by_label("Topic").fill("nope")
    browser.button("Show").click()
    page.get_by_text("This node has no such topic.").wait_for()


def test_a_live_tail(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = messages_of(browser, cluster, "topic=audit&state=history")
    page.get_by_label("Live").check()
    page.get_by_text("Live: new messages appear at the top.").wait_for()
    previews = page.locator(".messages .preview")
    for body in (b"first", b"second"):
        cluster.one.post("/pub?topic=audit", body)
        wait_until(lambda body=body: previews.first.inner_text() == body.decode())
    page.get_by_label("Live").uncheck()
    cluster.one.post("/pub?topic=audit", b"third")
    page.wait_for_timeout(500)
    assert previews.first.inner_text() == "second"
    page.get_by_label("Live").check()
    cluster.one.post("/pub?topic=audit", b"fourth")
    wait_until(lambda: previews.first.inner_text() in ("fourth", "third") or (cluster.one.post("/pub?topic=audit", b"fourth"), page.wait_for_timeout(300)) is None)
    # The tail stops when another view opens.
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_role("heading", name="Topics", level=1).wait_for()
    assert browser.complaints == []


BODIES = (b"plain", b"it's a 'quote'", b"@/etc/hostname", b"\x00\xffbinary", b"\x1b]0;title\x07line\nnext", "späte Töne €".encode(),
          b"-d looks like an option", b"$HOME `id` $(id)")


def test_copies_and_downloads(cluster, fleet, visit):
    """Each body is unchanged: in a file, in the clipboard, and by the curl command in a shell."""
    for body in BODIES:
        cluster.one.post("/pub?topic=bodies", body)
    cluster.one.post("/channel/create?topic=bodies&channel=c")
    seen(fleet, "/topics/bodies/c", lambda data: data["depth"] == len(BODIES))
    browser = visit(fleet.url, permissions=["clipboard-read", "clipboard-write"])
    page = messages_of(browser, cluster, "topic=bodies&channel=c")
    wait_until(lambda: page.locator(".messages summary").count() == len(BODIES))
    cluster.one.post("/channel/empty?topic=bodies&channel=c")
    for number, body in enumerate(BODIES):
        page.locator(".messages summary").nth(number).click()
        box = page.locator(".messages > li").nth(number)
        with page.expect_download() as download:
            box.get_by_role("button", name="Download").click()
        assert download.value.path().read_bytes() == body
        assert re.fullmatch(r"[0-9a-f]{16}\.bin", download.value.suggested_filename)
        box.get_by_role("button", name="Copy", exact=True).click()
        browser.toast()
        if body.isascii() and b"\x00" not in body:
            assert page.evaluate("navigator.clipboard.readText()") == body.decode()
        box.get_by_role("button", name="Copy as curl").click()
        browser.toast()
        command = page.evaluate("navigator.clipboard.readText()")
        assert "\x1b" not in command and "\x00" not in command
        assert subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout == b"OK"
    reader = cluster.one.connect().sub("bodies", "c", len(BODIES))
    assert sorted(message.body for message in reader.messages(len(BODIES))) == sorted(BODIES)
    assert not [each for each in browser.complaints if "Security Policy" in each]


def test_republishing_elsewhere(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = messages_of(browser, cluster, "topic=orders&channel=shipping")
    page.locator(".messages summary").nth(1).click()
    page.get_by_role("button", name="Publish again").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("To topic").fill("elsewhere")
    dialog.get_by_label("On node").select_option(address(cluster.other))
    browser.confirm("Publish")
    dialog.get_by_label("to confirm").wait_for()
    browser.confirm("Publish", "elsewhere")
    assert "done" in browser.toast()
    assert cluster.other.stats("elsewhere")["message_bytes"] == len(b"\x00\xffbinary")
    assert cluster.one.channel("orders", "shipping")["depth"] == 2


def test_jumping(cluster, fleet, visit):
    """By mouse and arrow keys, to a node and a page; unknown names."""
    browser = visit(fleet.url)
    page = browser.open()
    browser.button("Jump to").click()
    page.get_by_role("combobox").fill("no such name")
    page.get_by_text("No name contains this.").wait_for()
    page.get_by_role("combobox").fill("chan")
    page.get_by_role("option", name="Changes page").click()
    page.wait_for_url("**/changes")
    page.get_by_role("heading", name="Changes", level=1).wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("127.0.0.1")
    wait_until(lambda: page.get_by_role("option").count() == 2)
    second = page.get_by_role("option").nth(1).inner_text().split()[0]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/{second.replace(':', '%3A')}")
    page.goto(f"{fleet.url}/nodes/1.2.3.4:5")
    page.get_by_text("This node is not known.").wait_for()
    page.goto(f"{fleet.url}/topics/orders/nope")
    page.get_by_text("This channel does not exist.").wait_for()


def test_a_user_with_grants_for_some_topics(cluster, visit, tmp_path):
    """Shows only buttons and views that the grants cover."""
    token, stored = made()
    file = tmp_path / "access.toml"
    file.write_text(f'[users.team]\ntokens = ["{stored}"]\nstats = ["*.a", "*.b"]\nadmin = ["mine.*"]\nread = ["mine.*"]\n')
    node = cluster.node()
    for topic in ("mine.a", "their.b", "secret"):
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
    log_topic(node, "mine.a", 1)
    cluster.registered("secret", node)
    admin = cluster.admin(f"--access-file={file}")
    browser = visit(admin.url, extra_http_headers={"Authorization": f"Bearer {token}"})
    page = browser.open("topics")
    wait_until(lambda: page.locator("tbody tr").count() == 2)
    assert page.get_by_role("link", name="Lookup").count() == 0
    page.get_by_role("link", name="their.b").click()
    page.get_by_role("heading", name="their.b").wait_for()
    page.get_by_role("link", name="c", exact=True).wait_for()
    for name in ("Pause", "Delete…", "Rules…", "Empty…", "Remove…"):
        assert not browser.button(name).is_visible()
    assert not page.locator(".head").get_by_role("link", name="Messages").is_visible()
    page = browser.open("topics/mine.a")
    browser.button("Rules…").wait_for()
    browser.button("Pause").click()
    assert "done" in browser.toast()
    page = browser.open(f"nodes/{address(node)}")
    page.get_by_role("row", name=re.compile(r"^mine\.a")).get_by_role("button", name="Remove").wait_for()
    assert page.get_by_role("row", name=re.compile(r"^their\.b")).get_by_role("button", name="Remove").count() == 0
    assert not browser.button("Drain").is_visible()
    page = browser.open("messages?topic=mine.a&state=history")
    page.locator(".messages summary").first.wait_for()
    page.goto(f"{admin.url}/topics/secret")
    page.get_by_text("FORBIDDEN - user team has no grant stats for topic secret").wait_for()


def test_latencies(cluster, visit):
    """The overview uses the nodes' histograms; a topic that measures its own latency shows that."""
    def finished(topic, *flags):
        node = cluster.node(*flags)
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
        node.post(f"/pub?topic={topic}", b"body")
        node.connect().sub(topic, "c", 1).messages(1, finish=True)
        wait_until(lambda: node.channel(topic, "c")["in_flight_count"] == 0)
        cluster.registered(topic, node)

    finished("plain")
    browser = visit(cluster.admin().url)
    number = "p99 latency"

    def tile(page):
        return page.locator(".tiles > div", has_text=number).locator("dd").inner_text()

    page = browser.open()
    wait_until(lambda: tile(page).startswith("≤ "))
    page = browser.open("topics/plain")
    page.get_by_text("--e2e-processing-latency-percentile=0.99").wait_for()
    assert tile(page) == "–"
    finished("measured", "--e2e-processing-latency-percentile=0.99")
    page = browser.open("topics")
    page.get_by_role("link", name="measured").click()
    page.get_by_role("heading", name="measured", level=1).wait_for()
    wait_until(lambda: any(map(str.isdigit, tile(page))))  # the page may have polled before the message was finished
    assert "≤" not in tile(page)
    assert not page.get_by_text("--e2e-processing-latency-percentile=0.99").is_visible()
