"""The page in Chromium, for tests."""

import shutil

import pytest

from tests.support.patience import WAIT_SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, of Debian's package chromium (apt-get install chromium)")

EVIL = '"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
TAKE_TOAST = """() => {
    const box = [...document.querySelectorAll(".toast")].at(-1), text = box?.innerText;
    box?.querySelector("button[aria-label=Dismiss]").click();
    return text;
}"""
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 740}


class Visit:
    """A browser page and its console errors."""

    def __init__(self, browser, url, viewport=WIDE, theme="light", **more):
        """more: arguments of the browser's context."""
        self.url = url
        self.context = browser.new_context(viewport=viewport, color_scheme=theme, **more)
        self.context.set_default_timeout(WAIT_SECONDS * 1000)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path=""):
        self.page.goto(f"{self.url}/{path}")
        self.page.wait_for_selector(".page h1")
        return self.page

    def button(self, name, exact=False):
        return self.page.get_by_role("button", name=name, exact=exact)

    def confirm(self, verb, name=""):
        dialog = self.page.locator("dialog[open]")
        if name:
            ok = dialog.get_by_role("button", name=verb, exact=True)
            typed = dialog.get_by_label("to confirm")
            typed.fill(name + "x")
            assert ok.is_disabled()
            typed.fill(name)
        dialog.get_by_role("button", name=verb, exact=True).click()

    def toast(self):
        """The text of the next result, which is dismissed. In one step: a result goes by itself after some seconds."""
        return self.page.wait_for_function(TAKE_TOAST).json_value()
