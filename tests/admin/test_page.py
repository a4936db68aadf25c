"""The page in a real browser: each view and action, hostile names and bodies, keyboard, accessibility."""

import fcntl
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from nsqc import charts
from tests.access.files import AccessFile
from tests.admin.browser import EVIL, PHONE, WIDE, needs_chromium
from tests.admin.conftest import address
from tests.support.daemon import wait_until

pytestmark = needs_chromium

AXE = Path(__file__).parent / "axe"


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, installed by npm."""
    assert shutil.which("npm"), "this test needs npm (Debian: apt-get install npm)"
    script = AXE / "node_modules" / "axe-core" / "axe.min.js"
    with open(AXE / "package.json") as file:
        fcntl.flock(file, fcntl.LOCK_EX)    # tests may run in several processes
        if not script.exists():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=AXE, check=True, timeout=300)
    return script.read_text()


def views(cluster):
    """The paths of all views."""
    node = address(cluster.one)
    return ["", "topics", "topics/orders", "topics/audit", "topics/orders/billing", "nodes", f"nodes/{node}", "lookup", "changes",
            f"messages?topic=orders&channel=shipping&node={node}", f"messages?topic=audit&state=history&node={node}"]


@pytest.mark.long
@pytest.mark.parametrize("viewport, theme", [(WIDE, "light"), (PHONE, "dark")])
def test_every_view_is_accessible(cluster, fleet, visit, axe, viewport, theme, tmp_path):
    locked = AccessFile(tmp_path / "access.toml")
    locked.user("ops", stats=["*"])
    page = visit(cluster.admin(locked.write().flag).url, viewport=viewport, theme=theme).open()
    page.locator("form.sign").wait_for()
    page.evaluate(axe)
    assert page.evaluate("axe.run()")["violations"] == []
    browser = visit(fleet.url, viewport=viewport, theme=theme)
    browser.page.goto(f"{fleet.url}/no/such/page")
    browser.page.get_by_text("There is no such page.").wait_for()
    browser.page.evaluate(axe)
    assert browser.page.evaluate("axe.run()")["violations"] == []
    for path in views(cluster):
        page = browser.open(path)
        if path.startswith("messages"):
            page.locator(".messages summary").first.click()
            page.locator(".message pre").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        page.evaluate(axe)
        violations = page.evaluate("axe.run()")["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations] == [], path
        assert browser.complaints == [], path
    # Dialogs as well.
    page = browser.open("topics/audit/c")
    browser.button("Move").click()
    page.locator("dialog[open]").get_by_text("nothing changes").or_(page.locator("dialog[open]").get_by_text("will be")).first.wait_for()
    page.evaluate(axe)
    assert page.evaluate("axe.run()")["violations"] == []
    cluster.one.http("PUT", "/channel/rules?topic=orders&channel=billing", b'{"max_attempts": 3}')
    page = browser.open("topics/orders/billing")
    page.get_by_role("row", name="max_attempts 3").wait_for()
    browser.button("Rules").click()
    page.locator("dialog[open]").get_by_label("max_attempts").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(axe)
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in page.evaluate("axe.run()")["violations"]] == []


def test_hostile_names_and_bodies(cluster, fleet, visit):
    """Client-chosen strings are rendered as text."""
    browser = visit(fleet.url)
    page = browser.open("topics/orders/billing")
    page.get_by_text(EVIL, exact=True).first.wait_for()
    page = browser.open(f"messages?topic=orders&channel=shipping&node={address(cluster.one)}")
    page.locator(".messages summary").nth(1).wait_for()
    for summary in page.locator(".messages summary").all():
        summary.click()
    page.locator(".message pre").nth(1).wait_for()
    bodies = page.locator(".message pre").all_inner_texts()
    assert json.dumps(EVIL) in bodies[0] and "12345678901234567890" in bodies[0]      # all digits are kept
    assert bodies[1].startswith("000000  00 ff 62 69 6e 61 72 79")
    assert page.evaluate("window.pwned") is None and page.locator("main img, main script").count() == 0
    # In URLs as well.
    for path in (f"topics/{EVIL.replace('/', '%2F')}", "messages?topic=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"):
        page.goto(f"{fleet.url}/{path}")
        page.locator("main .problem, main .page").first.wait_for()
        assert page.evaluate("window.pwned") is None
    assert not [each for each in browser.complaints if "Security Policy" in each]


def test_actions(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open("topics/orders/shipping")
    browser.button("Pause", exact=True).click()
    text = browser.toast()
    assert address(cluster.one) in text and address(cluster.other) in text and text.count("done") == 2
    assert cluster.other.channel("orders", "shipping")["paused"]
    page.get_by_role("button", name="Unpause").wait_for()
    browser.button("Empty").click()
    browser.confirm("Empty", "shipping")
    browser.toast()
    assert [node.channel("orders", "shipping")["depth"] for node in (cluster.one, cluster.other)] == [0, 0]
    # A node dies: its result shows the error beside the other node's result.
    cluster.other.kill()
    browser.button("Unpause").click()
    text = browser.toast()
    assert "failed on 1 of 2" in text and "connection refused" in text
    assert not cluster.one.channel("orders", "shipping")["paused"]
    browser.button("Delete").click()
    browser.confirm("Delete", "shipping")
    assert "failed on" in browser.toast()
    wait_until(lambda: [each["channel_name"] for each in cluster.one.stats("orders")["channels"]] == ["billing"])
    page = browser.open("changes")
    assert page.locator("tbody tr").count() >= 4
    page = browser.open("topics")
    browser.button("New topic").click()
    page.get_by_label("Topic", exact=True).fill("made.here")
    browser.confirm("Create")
    assert "done" in browser.toast()
    assert "made.here" in cluster.lookupd.get("/topics")["topics"]


@pytest.mark.long
def test_seek_and_republish(cluster, fleet, visit):
    reader = cluster.one.connect().sub("audit", "c", 20)
    reader.messages(20, finish=True)
    reader.close()
    browser = visit(fleet.url)
    page = browser.open("topics/audit/c")
    browser.button("Move").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("To: beginning").fill("5")
    dialog.get_by_label("To: beginning").blur()
    dialog.get_by_text("15 messages will be delivered again").wait_for()
    browser.confirm("Move", "c")
    assert "done" in browser.toast()
    assert cluster.one.channel("audit", "c")["depth"] == 15
    page = browser.open(f"messages?topic=audit&state=history&node={address(cluster.one)}&from=7")
    page.locator(".messages summary").first.click()
    page.get_by_role("button", name="Publish again").first.click()
    browser.confirm("Publish")
    page.locator("dialog[open]").get_by_label("to confirm").wait_for()
    browser.confirm("Publish", "audit")
    assert "done" in browser.toast()
    wait_until(lambda: cluster.one.channel("audit", "c")["depth"] == 16)


@pytest.mark.long
def test_keyboard_and_links(cluster, fleet, visit):
    browser = visit(fleet.url)
    page = browser.open()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("orders/bil")
    page.get_by_role("option", name="orders / billing").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders/billing")
    page.get_by_role("heading", name="billing").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_label("Filter by name").fill("aud")
    page.wait_for_url("**/topics?search=aud")
    wait_until(lambda: page.locator("tbody tr").count() == 1)
    page.reload()
    wait_until(lambda: page.locator("tbody tr").count() == 1)
    page.get_by_role("button", name="Depth").focus()
    page.keyboard.press("Enter")
    wait_until(lambda: page.get_by_role("columnheader", name="Depth").get_attribute("aria-sort") == "descending")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert browser.open("topics").evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.long
def test_axes_are_those_of_other_charts(cluster, visit):
    node = cluster.node()
    page = visit(f"http://127.0.0.1:{node.http_port}/ui").open()
    tops = [0, 0.001, 0.3, 1, 2, 3.7, 4, 5, 7, 9.99, 10, 11, 23, 40, 50, 99, 100, 101, 250, 999, 1000, 12345, 1e6, 2.5e7, 4e9]
    drawn, told = page.evaluate("""async tops => {
        const {scale, labels} = await import(document.querySelector('link[href*="chart.js"]').href);
        const {count, rate} = await import(document.querySelector('link[href*="format.js"]').href);
        const drawn = [false, true].map(whole => tops.map(top => scale(top, whole)));
        return [drawn, drawn.map((all, whole) => all.map(ticks => labels(ticks, whole ? count : rate)))];
    }""", tops)
    assert all(len({*texts}) == len(texts) for texts in [*told[0], *told[1]]), told     # enough digits
    assert drawn == [[pytest.approx(charts.scale(top, whole)) for top in tops] for whole in (False, True)]
    assert charts.scale(3, True) == [0, 1, 2, 3] and charts.scale(1, True) == [0, 1]
    assert all(tick == int(tick) for tick in charts.scale(11, True))


@pytest.mark.long
def test_no_answer(cluster, fleet, visit):
    """The page reports the outage, keeps its data, and continues when the server is back."""
    browser = visit(fleet.url)
    page = browser.open("topics")
    fleet.close()
    page.locator("#state.bad").wait_for()
    assert page.locator("tbody tr").count() == 2
    page.goto("about:blank")


def test_the_page_of_a_daemon(cluster, visit):
    node = cluster.node()
    node.post("/topic/create?topic=alone")
    browser = visit(f"http://127.0.0.1:{node.http_port}/ui")
    page = browser.open()
    page.get_by_role("link", name="alone").first.click()
    browser.button("Pause", exact=True).click()
    assert "done" in browser.toast()
    assert node.stats("alone")["paused"]
    assert page.get_by_role("link", name="Lookup").count() == 0
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("look")
    page.get_by_text("No name contains this.").wait_for()
    assert browser.complaints == []
