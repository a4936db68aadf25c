"""Signing in by the form, TLS of the page, and what users with few grants see; on the admin server and at /ui."""

import json
import shutil
import ssl
import urllib.request

import pytest

from tests.access.files import AccessFile
from tests.admin.browser import needs_chromium
from tests.admin.conftest import API, address
from tests.support.daemon import Daemon, wait_until
from tests.support.secure import client_context, make_certificates

PAGE = {"X_Requested_With": "nsqc"}


@pytest.fixture
def users(tmp_path):
    """An access file: ops may do everything, ci publishes to builds."""
    file = AccessFile(tmp_path / "access.toml")
    file.user("ops", stats=["*"], admin=["*"], read=["*"], publish=["*"], consume=["*"])
    file.user("ci", publish=["builds"])
    return file.write()


def bearer(users, name):
    return {"Authorization": f"Bearer {users.tokens[name]}"}


def session_cookie(answer):
    return next(value.partition(";")[0] for value in answer.headers.get_all("Set-Cookie") if value.startswith("nsqc_session="))


def test_a_session_has_the_rights_of_its_token(cluster, two, users):
    admin = cluster.admin(users.flag)
    wrong = admin.call("POST", f"{API}/signin", {}, Authorization="Bearer nsqc_0123456789ab_" + "x" * 43, **PAGE)
    assert (wrong.status, wrong.json["message"]) == (401, "UNAUTHORIZED - the token is not known")
    assert "WWW-Authenticate" not in wrong.headers      # the browser would open its own dialog
    assert "WWW-Authenticate" in admin.call("GET", f"{API}/session").headers
    wait_until(lambda: '"call":"POST /api/v1/signin"' in admin.log)
    right = admin.call("POST", f"{API}/signin", {}, **bearer(users, "ops"))
    assert right.status == 200 and right.json == {"user": "ops"}
    cookie = session_cookie(right)
    header = next(value for value in right.headers.get_all("Set-Cookie") if value.startswith("nsqc_session="))
    assert "HttpOnly" in header and "SameSite=Strict" in header and users.tokens["ops"] not in header
    session = admin.get(f"{API}/session", Cookie=cookie)
    assert (session["user"], session["sign"], session["sees_all"]) == ("ops", "out", True)
    assert admin.call("GET", "/api/topics", Cookie=cookie).status == 200
    # A browser's change needs the other token, too; so does the end of the session.
    body, browser = {"action": "pause", "topic": "t"}, {"Origin": admin.url, "Cookie": cookie}
    assert admin.call("POST", f"{API}/actions", body, **browser).status == 403
    assert admin.call("POST", f"{API}/signout", {}, **browser).status == 403
    assert admin.call("POST", f"{API}/actions", body, Cookie=cookie).status == 200
    assert admin.call("POST", f"{API}/signout", {}, Cookie=cookie).status == 200
    assert admin.call("GET", f"{API}/session", Cookie=cookie).status == 401
    cookie = session_cookie(admin.call("POST", f"{API}/signin", {}, **bearer(users, "ops")))
    del users.users["ops"]
    users.write()
    wait_until(lambda: admin.call("GET", f"{API}/session", Cookie=cookie).status == 401)


def test_the_page_over_tls(cluster, two, users, tmp_path):
    make_certificates(tmp_path)
    for kind in ("pem", "key"):
        shutil.copy(tmp_path / f"server.{kind}", tmp_path / f"used.{kind}")
    admin = cluster.admin(users.flag, f"--tls-cert={tmp_path}/used.pem", f"--tls-key={tmp_path}/used.key")
    request = urllib.request.Request(f"https://127.0.0.1:{admin.port}{API}/signin", b"{}", bearer(users, "ops"))
    with urllib.request.urlopen(request, context=client_context(), timeout=60) as answer:
        assert all("; Secure" in value for value in answer.headers.get_all("Set-Cookie"))
    before = ssl.get_server_certificate(("127.0.0.1", admin.port))
    for kind in ("pem", "key"):
        shutil.copy(tmp_path / f"stranger.{kind}", tmp_path / f"used.{kind}")
    wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", admin.port)) != before)


def sign_in(browser, token):
    form = browser.page.locator("form.sign")
    form.get_by_label("Token").fill(token)
    form.get_by_role("button", name="Sign in").click()
    return form


@needs_chromium
@pytest.mark.parametrize("place", ["admin", "ui"])
def test_the_form(cluster, users, visit, tmp_path, place):
    node = Daemon(tmp_path / "node", users.flag)
    try:
        if place == "admin":
            token = tmp_path / "token"
            token.write_text(users.tokens["ops"])
            url = cluster.admin(users.flag, f"--node-auth-secret=@{token}", source=f"--nsqd-http-address={address(node)}").url
        else:
            url = f"http://{address(node)}/ui"
        browser = visit(url)
        browser.page.goto(f"{url}/topics")
        browser.page.locator("form.sign").wait_for()
        sign_in(browser, "wrong").get_by_text("wrong").wait_for()
        sign_in(browser, users.tokens["ops"])
        browser.button("Sign out").wait_for()
        browser.page.get_by_role("heading", name="0 topics").wait_for()
        browser.page.reload()
        browser.button("Sign out").click()
        browser.page.locator("form.sign").wait_for()
        sign_in(browser, users.tokens["ci"])
        browser.button("Sign out").wait_for()
        browser.page.goto(f"{url}/")
        browser.page.get_by_text("publish builds").wait_for()
        assert "All is well" not in browser.page.inner_text("main")
        # Nothing is offered that the user may not see, and no health that is not known.
        assert browser.page.locator("#nav a").all_inner_texts() == ["Overview", "Nodes"]
        browser.page.get_by_role("link", name="Nodes").click()
        browser.page.get_by_role("cell", name="answers", exact=True).wait_for()
        refused = [text for text in browser.complaints if "401" not in text]
        assert refused == []
    finally:
        node.close()


@needs_chromium
def test_a_session_that_ends_by_itself(cluster, two, users, visit):
    """The page then has the form, and neither the name of the user nor a way to sign out."""
    browser = visit(cluster.admin(users.flag).url)
    browser.page.goto(browser.url)
    sign_in(browser, users.tokens["ops"])
    browser.button("Sign out").wait_for()
    del users.users["ops"]
    users.write()
    browser.page.locator("form.sign").wait_for()
    assert not browser.button("Sign out").is_visible() and browser.page.locator("#state").inner_text() == ""
    sign_in(browser, users.tokens["ci"])
    browser.button("Sign out").wait_for()
    # It ends in another window: a click reports nothing and brings the form.
    browser.context.clear_cookies(name="nsqc_session")
    browser.button("Sign out").click()
    browser.page.locator("form.sign").wait_for()
    assert [text for text in browser.complaints if "401" not in text] == []


def test_nothing_of_a_token_is_kept_by_the_page(cluster, two, users):
    """Neither the log nor an answer has it."""
    admin = cluster.admin(users.flag)
    answer = admin.call("POST", f"{API}/signin", {}, **bearer(users, "ops"))
    told = json.dumps(dict(answer.headers)) + answer.body.decode() + json.dumps(admin.get(f"{API}/session", Cookie=session_cookie(answer)))
    assert users.tokens["ops"] not in told + admin.log
