"""The page in a real browser: what an operator looks at closely. Rules in words, long names, ranges, searches by
regular expressions, letters of mixed storage, changes done in part, pauses, a phone."""

import json
import random
import re
import socket
import string

import pytest

from nsqc.admin.patterns import Expression, finder
from tests.admin.browser import needs_chromium
from tests.admin.conftest import API, address, seen
from tests.rules.letters import die, waiting
from tests.rules.support import set_rule
from tests.support.daemon import wait_until

PHONE = {"width": 390, "height": 700}
LONG = "warehouse.europe.west.orders.with.a.name.that.ends.in.its.region-"


# ---------------------------------------------------------------------- regular expressions

PATTERNS = ["^a", "b$", "^a|b$", "(ab)+c", "[a-c]+d?", "[^a]b", "a.*b", r"^(ab|cd)\.[a-d]+$", r"\d+", "(a|b)*c", "x?", "^$",
            "a(b|c)?d", "[]a]", "[-a]", r"a\.b", "(a*)*b", "((a|b)*|c)d", "[A-C]D"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_expressions_match_as_pythons(pattern):
    """Against Python's own, for names that are short enough for it."""
    chance, mine, known = random.Random(pattern), Expression(pattern), re.compile(pattern, re.IGNORECASE)
    for _ in range(2000):
        name = "".join(chance.choice("abcdD.x1-") for _ in range(chance.randint(0, 6)))
        assert mine.found_in(name) == bool(known.search(name)), (pattern, name)


@pytest.mark.parametrize("pattern, fault", [("(a", "a ) is missing, at character 3"), ("a)", "nothing opens this )"), ("[a", "a ] is missing"),
                                            ("*a", "* has no meaning here, at character 1"), ("a{2}", "{ has no meaning"), (r"\D", r"\D is not known"),
                                            ("a" * 201, "at most 200 characters")])
def test_faulty_expressions(pattern, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        Expression(pattern)


def test_no_expression_takes_long():
    """Python's engine would need longer than anyone has for one of these names."""
    fits = finder("/(a+)+(a*)*(a|aa)+b$/")
    assert not any(fits("a" * 60 + letter) for letter in string.ascii_lowercase.replace("b", "")) and fits("a" * 60 + "b")


def test_searches(cluster, two):
    for name in ("orders.eu", "orders.us", "orders.eu.dead", "mail"):
        two[0].post(f"/topic/create?topic={name}")
    two[0].post("/channel/create?topic=mail&channel=orders")
    admin = cluster.admin()
    seen(admin, "/topics", lambda data: data["total"] == 5)

    def names(text):
        return [row["name"] for row in admin.get(f"{API}/topics?search={text}")["topics"]]

    assert names("/^orders%5C.(eu%7Cus)$/") == ["orders.eu", "orders.us"]
    assert names("/S.E/") == ["orders.eu", "orders.eu.dead"] and names("s.e") == ["orders.eu", "orders.eu.dead"] and names("s.*e") == []
    assert {each["channel"] for each in admin.get(f"{API}/search?q=/orders$/")["found"]} == {"orders"}
    assert [row["name"] for row in admin.get(f"{API}/nodes/{address(two[0])}?search=/^m/")["topic_rows"]] == ["mail"]
    answer = admin.call("GET", f"{API}/topics?search=/(a/")
    assert answer.status == 400 and "a ) is missing" in answer.json["message"]


@needs_chromium
@pytest.mark.parametrize("path, label", [("topics", "Filter by name"), ("nodes/NODE", "Filter topics")])
def test_a_faulty_search_is_told_in_place_of_the_list(cluster, two, visit, path, label):
    admin = cluster.admin()
    seen(admin, "/topics/t", lambda data: len(data["node_rows"]) == 2)
    browser = visit(admin.url, viewport=PHONE)
    page = browser.open(path.replace("NODE", address(two[0])))
    link = page.get_by_role("link", name="t", exact=True)
    link.wait_for()
    page.get_by_label(label).fill("/(/")
    page.get_by_role("alert").get_by_text("a ) is missing, at character 2 of the regular expression").wait_for()
    assert not link.is_visible()
    page.get_by_label(label).fill("/^t$/")
    link.wait_for()
    assert not page.get_by_role("alert").is_visible()


# ---------------------------------------------------------------------- rules

@needs_chromium
@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 640}])
def test_rules_are_in_words_and_save_is_in_sight(cluster, two, visit, viewport):
    for node in two:
        set_rule(node, "t", "c", max_attempts=7, requeue_delay="2s")
    admin = cluster.admin()
    seen(admin, "/topics/t/c", lambda data: len(data["node_rules"]) == 2)
    keys = admin.get(f"{API}/rules")
    browser = visit(admin.url, viewport=viewport)
    for path, noun in (("topics/t/c", "channel"), ("topics/t", "topic")):
        page = browser.open(path)
        browser.button("Rules…").click()
        dialog = page.locator("dialog[open]")
        save = dialog.get_by_role("button", name="Save")
        save.wait_for()
        # Every key has words and a group: none is left for the last one.
        assert dialog.get_by_role("group", name="More").count() == 0
        assert dialog.locator("fieldset label.field").count() == len(keys[noun])
        box = save.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= viewport["height"]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert dialog.locator(".body").evaluate("box => box.scrollHeight > box.clientHeight && box.scrollWidth <= box.clientWidth")
        if noun == "channel":
            dead = dialog.get_by_role("group", name="Dead letters")
            field = dead.get_by_label("Attempts, at most")
            assert field.input_value() == "7" and "max_attempts" in dead.inner_text() and "deliveries" in dead.inner_text()
            assert dialog.get_by_label("Delay of a retry").input_value() == "2s"
            field.fill("9")
            save.click()
            assert "done" in browser.toast()
            assert json.loads(two[1].http("GET", "/channel/rules?topic=t&channel=c")[1])["max_attempts"] == 9


# ---------------------------------------------------------------------- names, charts, a phone

@needs_chromium
@pytest.mark.parametrize("viewport", [PHONE, {"width": 900, "height": 700}])
def test_long_names_are_cut_in_the_middle(cluster, two, visit, viewport):
    names = [LONG[:61] + end for end in ("-eu", "-us")]
    for name in names:
        two[0].post(f"/topic/create?topic={name}")
    admin = cluster.admin()
    seen(admin, "/topics", lambda data: data["total"] == 3)
    browser = visit(admin.url, viewport=viewport)
    page = browser.open("topics")
    for name in names:
        link = page.get_by_role("link", name=name, exact=True)
        assert link.get_attribute("title") == name
        start, end = link.locator("span").all()
        assert end.inner_text() == name[-12:] and start.inner_text() + end.inner_text() == name
        if viewport is PHONE:
            assert start.evaluate("box => box.scrollWidth > box.clientWidth")
        cell, box = link.locator("..").bounding_box(), end.bounding_box()
        assert box["x"] + box["width"] <= cell["x"] + cell["width"]
    page.get_by_role("link", name=names[1], exact=True).click()
    page.get_by_role("heading", name=names[1]).wait_for()


@needs_chromium
def test_the_range_of_charts(cluster, two, visit, prometheus):
    browser = visit(cluster.admin(f"--prometheus-url={prometheus.url}").url)
    page = browser.open("topics/t/c")
    page.get_by_role("img", name="Messages, the last 60 min").wait_for()
    page.get_by_label("Range of the charts").select_option("Last week")
    page.wait_for_url("**/topics/t/c?range=1w")
    chart = page.get_by_role("img", name="Messages, the last 7 d")
    chart.wait_for()
    times = [text for text in chart.locator("text").all_text_contents() if ":" in text]
    assert len(times) == 5 and all(re.fullmatch(r"\d\d-\d\d \d\d:\d\d", text) for text in times)
    page.reload()
    chart.wait_for()
    assert page.get_by_label("Range of the charts").input_value() == "1w"


@needs_chromium
def test_a_chart_begins_with_its_data(cluster, two, visit):
    """Its first time is that of the first point, and the range picker is only where there is something to pick."""
    admin = cluster.admin()
    began = seen(admin, "/topics/t", lambda data: data["series"])["series"]["start"]
    page = visit(admin.url).open("topics/t")
    labels = page.locator(".chart svg").first.locator("text", has_text=":")
    labels.first.wait_for()
    assert not page.get_by_label("Range of the charts").is_visible()
    clock = "unix => new Intl.DateTimeFormat('en-GB', {timeStyle: 'medium'}).format(new Date(unix * 1000))"
    # Less than a minute of data has a minute's room; an hour of room would have labels before that.
    earliest = of_day(page.evaluate(clock, began - 60))
    after = [(of_day(text) - earliest) % 86400 for text in labels.all_text_contents()]
    assert after and max(after) < 1800, after


def of_day(text: str) -> int:
    """Seconds, of HH:MM or HH:MM:SS."""
    hours, minutes, *seconds = map(int, text.split(":"))
    return 3600 * hours + 60 * minutes + sum(seconds)


@needs_chromium
def test_the_navigation_of_a_phone(cluster, two, visit):
    browser = visit(cluster.admin().url, viewport={"width": 320, "height": 640})
    page = browser.open("changes")
    nav = page.locator("#nav")
    assert nav.evaluate("nav => nav.scrollWidth > nav.clientWidth && nav.scrollLeft > 0 && getComputedStyle(nav).backgroundImage.includes('gradient')")
    current = nav.locator("[aria-current]").bounding_box()
    assert current["x"] >= 0 and current["x"] + current["width"] <= 320
    page = browser.open("")
    assert nav.evaluate("nav => nav.scrollLeft") == 0


@needs_chromium
def test_lists_that_are_longer_than_their_page(cluster, two, visit):
    """Nothing is left out without a way to it."""
    admin = cluster.admin()
    for number in range(205):
        two[0].post(f"/channel/create?topic=t&channel=c{number:03}")
    for number in range(14):
        two[0].post(f"/topic/create?topic=p{number:02}")
        two[0].post(f"/topic/pause?topic=p{number:02}")
    seen(admin, "/topics/t", lambda data: data["channels"] == 206)
    seen(admin, "/attention", lambda data: data["counts"].get("note") == 14)
    browser = visit(admin.url)
    page = browser.open("topics/t")
    page.get_by_text("1–200 of 206").wait_for()
    browser.button("Next").click()
    page.get_by_role("link", name="c204", exact=True).wait_for()
    page = browser.open()
    browser.button("Show 14 of 14").click()
    page.get_by_text("Topic p13 is paused").wait_for()
    assert page.locator(".concerns li").count() == 14


@needs_chromium
def test_addresses_that_are_none(cluster, two, visit):
    page = visit(cluster.admin().url).page
    for path, told in (("no/such/page", "There is no such page."), ("%E0%A4", "There is no such page."), ("topics/%E0%A4", "This topic does not exist.")):
        page.goto(f"{cluster.admins[0].url}/{path}")
        page.get_by_text(told).wait_for()


# ---------------------------------------------------------------------- letters, changes, pauses

@needs_chromium
def test_letters_of_mixed_storage(cluster, visit):
    """One node has them in a log, where each has its origin; the other in memory, where a user names their way."""
    logged, memory = cluster.node("--topic-storage=log"), cluster.node()
    for node in (logged, memory):
        node.post("/topic/create?topic=orders.dead")
        node.post("/channel/create?topic=orders.dead&channel=archive")
        die(node, "orders", "billing", b"one", b"two")
    wait_until(lambda: memory.channel("orders.dead", "archive")["depth"] == 2)
    cluster.registered("orders.dead", logged, memory)
    admin = cluster.admin()
    seen(admin, "/topics/orders.dead", lambda data: len(data["node_rules"]) == 2 and data["dead_letters_of"])
    browser = visit(admin.url)
    page = browser.open("topics/orders.dead")
    browser.button("Redrive all").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_text(f"In memory, as on {address(memory)}").wait_for()
    assert dialog.get_by_label("that holds them").input_value() == "archive"
    assert dialog.get_by_label("that gets those").input_value() == "orders/billing"
    wait_until(lambda: dialog.get_by_text("2 will be redriven").count() == 2)
    browser.confirm("Redrive")
    assert browser.toast().count("2 redriven") == 2
    assert waiting(logged, "orders.dead") == [] and memory.channel("orders.dead", "archive")["depth"] == 0
    wait_until(lambda: all(node.channel("orders", "billing")["depth"] == 2 for node in (logged, memory)))
    body = {"action": "redrive", "topic": "orders.dead", "source": "none", "to": "orders/billing"}
    results = {each["target"]: each for each in admin.call("POST", f"{API}/actions", body).json["results"]}
    assert results[address(memory)]["message"] == "CHANNEL_NOT_FOUND" and results[address(logged)]["ok"]


@needs_chromium
def test_consumers_that_back_off_and_their_connections(cluster, two, visit):
    idle, ill = two[0].connect().sub("t", "c", 1), two[1].connect().sub("t", "c", 1)
    admin = cluster.admin()
    seen(admin, "/topics/t/c", lambda data: len(data["consumers"]) == 2)
    browser = visit(admin.url)
    page = browser.open("topics/t/c")
    page.get_by_role("button", name="Close…").nth(1).wait_for()
    assert page.locator(".badge", has_text="back").count() == 0
    ill.send(b"RDY 0 backoff\n")
    page.get_by_text(re.compile(r"^1 of 2 consumers backing off after failures, for \d+ (ms|s)$")).wait_for()
    page.get_by_role("cell", name=re.compile(r"^0, backing off for \d+ (ms|s)$")).wait_for()
    idle.send(b"RDY 0\n")
    page.get_by_role("cell", name=re.compile(r"^0 for \d+ (ms|s)$")).wait_for()
    ill.send(b"RDY 1\n")
    page.locator(".badge", has_text="back").wait_for(state="hidden")
    name = f"127.0.0.1:{ill.sock.getsockname()[1]}"
    row = page.get_by_role("region", name="Consumers").get_by_role("row", name=re.compile(name))     # its message has one, too
    row.get_by_role("button", name="Close…").click()
    page.locator("dialog[open]").get_by_text(f"{name}, a consumer of channel c of t on {address(two[1])}").wait_for()
    browser.confirm("Close")
    assert "done" in browser.toast()
    row.wait_for(state="detached")
    assert two[1].channel("t", "c")["clients"] == [] and len(two[0].channel("t", "c")["clients"]) == 1
    answer = admin.call("POST", f"{API}/actions", {"action": "disconnect", "topic": "t", "channel": "c", "client": name})
    assert answer.status == 400 and answer.json["message"].startswith("INVALID_NODES")


@needs_chromium
def test_changes_tell_what_was_done_in_part(cluster, two, visit):
    admin = cluster.admin()
    seen(admin, "/topics/t", lambda data: len(data["node_rows"]) == 2)
    two[1].kill()
    admin.call("POST", f"{API}/actions", {"action": "pause", "topic": "t", "channel": "c"})
    page = visit(admin.url).open("changes")
    page.get_by_text(f"done on 1 of 2; {address(two[1])}: cannot reach {address(two[1])}: connection refused").wait_for()
    two[0].kill()
    admin.call("POST", f"{API}/actions", {"action": "unpause", "topic": "t", "channel": "c"})
    page.reload()
    page.get_by_text(re.compile("^failed; ")).wait_for()


# ---------------------------------------------------------------------- a node with a bucket

@needs_chromium
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_bucket_of_a_node(cluster, visit, tmp_path, theme):
    """How late it is, and whom the node was taken from: in the list and on the page of a node that continues elsewhere."""
    flags = (f"--bucket=file://{tmp_path}/bucket", "--node-name=nsqd-1", "--topic-storage=log", "--bucket-linger=20ms")
    first = cluster.node(*flags)
    first.publish("orders", b"one")
    assert first.stop() == 0
    second, plain = cluster.node(*flags), cluster.node()
    second.publish("orders", b"two")
    cluster.registered("orders", second)
    admin = cluster.admin()

    def rows(data):
        return {row["address"]: row["bucket"] for row in data["nodes"]}

    found = rows(seen(admin, "/nodes", lambda data: rows(data).get(address(second))))
    assert found[address(second)].keys() == {"epoch", "lag_seconds", "lag_bytes"} and found[address(plain)] is None
    browser = visit(admin.url, theme=theme)
    page = browser.open("nodes")
    page.get_by_role("columnheader", name="Bucket lag").wait_for()
    page = browser.open(f"nodes/{address(second)}")
    tiles = page.locator("dl", has=page.get_by_text("Bucket lag", exact=True))
    tiles.wait_for()
    assert re.search(rf"Owned since\s+[-0-9]{{10}} [:0-9]{{8}}, taken from {re.escape(socket.gethostname())}", tiles.inner_text())
    page = browser.open(f"nodes/{address(plain)}")
    page.get_by_text("Answers in", exact=True).wait_for()
    assert page.get_by_text("Bucket lag", exact=True).count() == 1 and not page.get_by_text("Bucket lag", exact=True).is_visible()
    assert browser.complaints == []
