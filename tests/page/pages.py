"""The page in a browser, as its reader uses it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from tests.browser import Browser
from tests.journeys.running import RunningLab

HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script><b>wider</b>'
"""Text of an agent that would run a script if it became markup."""


GO = """
    if (location.origin !== arguments[0] || document.querySelector("#view") === null) return false;
    if (location.hash === arguments[1]) return false;
    return new Promise((done) => {
        addEventListener("hashchange", () => done(true), { once: true });
        location.hash = arguments[1];
    });
"""
"""Changes the address within the page that is open, and waits until the page has heard of it."""
NOWHERE = "#tag=-"
BASE_PATCH = "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n"
CHART = """
    const { getInstanceByDom } = await import("/static/echarts/echarts.esm.min.js");
    const element = document.querySelectorAll("#view .plot")[arguments[0]];
    const chart = element && getInstanceByDom(element);
"""
"""The view's nth chart for JavaScript that may await."""
_commits = itertools.count(0xABC0000)


def registered(lab: RunningLab, tag: str, **changes: object) -> str:
    """The id of a run that its agent trains itself."""
    body = {
        "hypothesis": "h",
        "category": "other",
        "diff_summary": "d",
        "commit_sha": f"{next(_commits):07x}",
    }
    return str(lab.post("experiment/register", tag=tag, **body | changes)["experiment_id"])


def measured(lab: RunningLab, tag: str, *values: float, **changes: object) -> list[str]:
    """The ids of runs whose agent reports these values."""
    found = []
    for value in values:
        about = {"hypothesis": f"idea {value}", "diff_summary": f"LR 0.1 -> {value}"}
        found.append(registered(lab, tag, **about | changes))
        lab.post("experiment/complete", experiment_id=found[-1], val_bpb=value)
    return found


class Page:
    """One reader's tab at one lab. Until `sign_in` the reader is a visitor, who may only look."""

    def __init__(self, browser: Browser, lab: RunningLab) -> None:
        self.browser = browser
        self.lab = lab

    def url(self, address: str = "") -> str:
        return f"http://127.0.0.1:{self.lab.port}/{address}"

    def sign_in(self) -> None:
        """Become the operator by a link as `nightjar open` prints it."""
        code = self.lab.post("token/sign-in")["code"]
        self._go(f"#sign-in={code}")
        self.until("operator", "#who:not([hidden]) b")

    def show(self, *, anew: bool = False, **address: str) -> None:
        """Go to an address, such as tag="mar11", view="runs", and wait until the page is live there.

        A page that is open goes on, unless it is loaded `anew`.
        """
        self._go("#" + urlencode(address), anew=anew)
        self.browser.until(lambda: self.browser.texts("#connection") == ["live"], "the page is live")

    def leave(self) -> None:
        """Leave the page to the next test as this one got it: nobody is signed in, and nothing is shown."""
        if any(self.texts("#who:not([hidden])")):
            self.run("document.querySelector('#who button').click()")
            self.browser.until(lambda: any(self.texts("#visit:not([hidden])")), "nobody is signed in")
        self._go(NOWHERE)
        self.said()

    def _go(self, hash_: str, *, anew: bool = False) -> None:
        if anew or not self.run(GO, self.url()[:-1], hash_):
            self.browser.open("about:blank")
            self.browser.open(self.url(hash_))

    @contextmanager
    def on_a_phone(self) -> Iterator[None]:
        """A screen of 390 by 844 pixels; a window of Chromium is never that narrow."""
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        self.browser.tell("Emulation.setDeviceMetricsOverride", **size)
        try:
            yield
        finally:
            self.browser.tell("Emulation.clearDeviceMetricsOverride")

    def texts(self, css: str) -> list[str]:
        return self.browser.texts(css)

    def until(self, text: str, css: str = "#view") -> None:
        """Wait until an element that matches shows the text."""
        self.browser.until(lambda: any(text in found for found in self.texts(css)), f"{css} shows {text!r}")

    def settles(self, read: Callable[[], object], wanted: object) -> None:
        """Wait until this is read: the page is drawn in steps, and again when something happens."""
        self.browser.until(lambda: read() == wanted, f"{wanted!r} is read")

    def until_gone(self, css: str) -> None:
        self.browser.until(lambda: not self.texts(css), f"no {css} is left")

    def rows(self) -> list[list[str]]:
        """The cells of the table's rows in sight, boxes left out."""
        found: list[list[str]] = self.browser.run(
            "return [...document.querySelectorAll('#view tbody tr:not(.gap)')]"
            ".map((row) => [...row.querySelectorAll('td:not(.box)')].map((cell) => cell.innerText.trim()))"
        )
        return found

    def click(self, text: str, css: str = "button, a") -> None:
        """Click the first element that matches and has this text."""
        script = (
            "const [css, text] = arguments;"
            "const all = [...document.querySelectorAll(css)];"
            "const found = all.find((e) => e.innerText.trim() === text && !e.disabled);"
            "found?.click(); return Boolean(found)"
        )
        self.browser.until(lambda: self.browser.run(script, css, text), f"{css} says {text!r}")

    def press(self, css: str) -> None:
        """Click the first element that matches, as soon as there is one. It may be drawn anew at any time."""
        script = "const found = document.querySelector(arguments[0]); found?.click(); return Boolean(found)"
        self.browser.until(lambda: self.browser.run(script, css), f"there is {css}")

    def confirm(self, verb: str) -> str:
        """Answer the question that an action asks; answers its text."""
        self.browser.until(lambda: self.texts("#asking[open]"), "the page asks")
        (question,) = self.texts("#asking[open] form > p:first-of-type")
        self.click(verb, "#asking[open] button")
        self.until_gone("#asking[open]")
        return question

    def address(self) -> dict[str, str]:
        """What stands behind the # of the address."""
        found: dict[str, str] = self.browser.run(
            "return Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
        )
        return found

    def fits(self) -> bool:
        """Whether nothing makes the page scroll sideways."""
        wide, window = self.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        return bool(wide <= window)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.run(script, *arguments)

    def asked(self, script: str, *arguments: Any) -> Any:
        """The answer of JavaScript that may await."""
        return self.run(f"return (async function () {{ {script} }}).apply(null, arguments)", *arguments)

    def series(self, nth: int = 0) -> list[dict[str, Any]]:
        """The series of the view's nth chart, once it is drawn."""
        found: list[dict[str, Any]] = self.asked(f"{CHART} return chart?.getOption()?.series ?? []", nth)
        return found

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """An event of the mouse at a place of the window, as Chromium's own protocol names it."""
        self.browser.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def said(self) -> list[str]:
        """Errors in the console since the last call."""
        return self.browser.said()
