"""A real headless Chromium, driven through chromedriver's WebDriver protocol (W3C), which is plain HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

PROGRAMS = ("chromium", "chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_S = 60.0
STARTS = 10
"""Of a driver, whose port another process may take meanwhile."""
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""What the standard names a reference to an element."""


def missing() -> list[str]:
    """Which of the programs are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """One browser, and the window that it shows."""

    def __init__(self, http: httpx.Client, session: str) -> None:
        self._http = http
        self._session = f"/session/{session}"
        self._origins: set[str] = set()

    @contextmanager
    def window(self) -> Iterator[Browser]:
        """A new tab that knows nothing, as in a fresh profile; a new window would cost a second of CPU more."""
        first = self._ask("GET", "/window")
        new = self._ask("POST", "/window/new", type="tab")["handle"]
        self._ask("POST", "/window", handle=new)
        try:
            yield self
        finally:
            self.forget()
            self._ask("DELETE", "/window")
            self._ask("POST", "/window", handle=first)

    def open(self, url: str) -> None:
        self._origins.add("{0.scheme}://{0.netloc}".format(urlsplit(url)))
        self._ask("POST", "/url", url=url)

    def back(self) -> None:
        """Press the Back button."""
        self._ask("POST", "/back")

    def run(self, script: str, *arguments: Any) -> Any:
        """What JavaScript answers: the body of a function with these arguments."""
        return self._ask("POST", "/execute/sync", script=script, args=list(arguments))

    def texts(self, css: str) -> list[str]:
        """The text of every element that matches, as a reader sees it."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", css
        )
        return found

    def text(self, css: str) -> str:
        """The text of the one element that matches."""
        (found,) = self.texts(css)
        return found

    def click(self, css: str) -> None:
        self._ask("POST", f"/element/{self._element(css)}/click")

    def write(self, css: str, text: str) -> None:
        """Type into the element that matches, key by key."""
        self._ask("POST", f"/element/{self._element(css)}/value", text=text)

    def before_each_page(self, script: str) -> None:
        """Run JavaScript before any of a page's own, from the next page on."""
        self.tell("Page.addScriptToEvaluateOnNewDocument", source=script)

    def choose(self, css: str, value: str) -> None:
        """Choose an option of a `select` as soon as there is one of this value."""
        script = """
            const [select, value] = [document.querySelector(arguments[0]), arguments[1]];
            if (![...select.options].some((option) => option.value === value)) return false;
            select.value = value;
            return select.dispatchEvent(new Event("change"));
        """
        self.until(lambda: self.run(script, css, value), f"{css} offers {value!r}")

    def answer(self, accept: bool) -> str:
        """Accept or dismiss the dialog that the page shows; answers its text."""
        text = self.until(self._asked, "the page asks")
        self._ask("POST", "/alert/accept" if accept else "/alert/dismiss")
        return str(text)

    def press(self, key: str) -> None:
        """Press and release one key where the focus is."""
        strokes = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def size(self, width: int, height: int) -> None:
        self._ask("POST", "/window/rect", width=width, height=height)

    def said(self) -> list[str]:
        """What stood in the console since the last call: errors, and refusals of the content security policy."""
        return [
            f"{entry['level']} {entry['message']}" for entry in self._ask("POST", "/se/log", type="browser")
        ]

    def dark(self, preferred: bool) -> None:
        """Prefer dark pages, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if preferred else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[feature])

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def until(self, met: Callable[[], Any], what: str) -> Any:
        """Wait until something is so, much longer than it should take."""
        give_up = time.monotonic() + PATIENCE_S
        while not (answer := met()):
            if time.monotonic() > give_up:
                raise AssertionError(f"never: {what}\n{self.run('return document.body.innerText')}")
            time.sleep(0.1)
        return answer

    def close(self) -> None:
        self._http.delete(self._session)

    def forget(self) -> None:
        """Forget everything that pages have kept, and what the console said."""
        self._ask("POST", "/url", url="about:blank")
        for origin in self._origins:
            self.tell("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.tell("Network.clearBrowserCookies")
        self.tell("Network.clearBrowserCache")
        self._origins.clear()
        self.said()

    def _asked(self) -> str | None:
        """The text of the dialog that is open."""
        text = self._http.get(self._session + "/alert/text").json()["value"]
        return text if isinstance(text, str) else None

    def _element(self, css: str) -> str:
        found = self._ask("POST", "/element", using="css selector", value=css)
        return str(found[ELEMENT])

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        answer = self._http.request(
            method, self._session + path, json=body if method == "POST" else None
        ).json()["value"]
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{path}: {json.dumps(answer)[:2000]}")
        return answer


@contextmanager
def chromedriver(log: Path) -> Iterator[httpx.Client]:
    """A driver on a port of its own choice; it and its browsers end with us."""
    for _ in range(STARTS):
        with log.open("w") as out:
            driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=out, process_group=0)
        try:
            if (port := _port(driver, log)) is None:
                continue
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
                yield http
            return
        finally:
            driver.terminate()
            driver.wait()
    raise AssertionError(log.read_text())


def _port(driver: subprocess.Popen[bytes], log: Path) -> int | None:
    """The port that it listens on; None: the one that IPv6 had free was taken under IPv4, and it has ended."""
    give_up = time.monotonic() + PATIENCE_S
    while not (said := re.search(r"started successfully on port (\d+)", log.read_text())):
        has_ended, text = driver.poll() is not None, log.read_text()
        if has_ended and "Address already in use" in text:
            return None
        assert not has_ended, text
        assert time.monotonic() < give_up, text
        time.sleep(0.05)
    return int(said[1])


@contextmanager
def browsing(driver: httpx.Client, profile: Path) -> Iterator[Browser]:
    """A browser with a fresh profile."""
    options = {"binary": shutil.which("chromium"), "args": [*FLAGS, f"--user-data-dir={profile}"]}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    answer = driver.post("/session", json={"capabilities": {"alwaysMatch": wanted}}).json()["value"]
    assert "sessionId" in answer, answer
    browser = Browser(driver, answer["sessionId"])
    try:
        yield browser
    finally:
        browser.close()


def is_demanded() -> bool:
    """Whether a missing browser is a failure, not a skip."""
    return bool(os.environ.get("CI"))
