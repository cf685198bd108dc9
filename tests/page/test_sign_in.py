"""Signing in to the live page with a token, in a real browser, over a real lab that has tokens."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from state.settings import Settings
from tests.browser import Browser
from tests.commands import nightjar
from tests.journeys.running import RunningLab, running_lab
from triggers.cli.token import page_to
from triggers.http.identity import COOKIE

ENTER = "\ue007"
TAB = "\ue004"
WATCH = """
    window.sources = [];
    window.EventSource = class extends EventSource {
        constructor(...args) { super(...args); window.sources.push(this); }
    };
"""
"""Every event stream that a page opens is remembered."""
RUNS = "#tag=secret-tag&view=runs"
_names = (f"n{nth}" for nth in itertools.count())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with a tag and tokens; its users here are its operator."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start()
        found.setup("secret-tag")
        found.http.headers["authorization"] = f"Bearer {token(found, 'operator')['token']}"
        yield found


def token(lab: RunningLab, role: str, **more: Any) -> dict[str, Any]:
    """A new token of a new bearer."""
    found: dict[str, Any] = lab.post("token/issue", name=next(_names), role=role, **more)
    return found


def registered(lab: RunningLab, hypothesis: str) -> None:
    body = {
        "hypothesis": hypothesis,
        "category": "other",
        "commit_sha": "abc1234",
        "diff_summary": hypothesis,
    }
    lab.post("experiment/register", tag="secret-tag", **body)


def url(lab: RunningLab, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{lab.port}/"


def arrive(browser: Browser, lab: RunningLab) -> None:
    """Open the page, and wait for the form."""
    browser.before_each_page(WATCH)
    browser.open(url(lab))
    until_asked(browser)
    browser.run("window.loaded = 'once'")


def is_visible(browser: Browser, css: str) -> bool:
    return bool(browser.run("return document.querySelector(arguments[0]).checkVisibility()", css))


def until_asked(browser: Browser, reason: str = "") -> None:
    """Wait for the form, with this reason."""
    browser.until(lambda: is_visible(browser, "#sign-in"), "the form is there")
    browser.until(lambda: reason in browser.text("#sign-in .why"), f"it says {reason!r}")


def until_complained(browser: Browser, told: str) -> None:
    browser.until(lambda: browser.text("#sign-in .problem") == told, "what is wrong")


def sign_in(browser: Browser, text: str) -> None:
    browser.write("#token", text + ENTER)


def until_shown(browser: Browser) -> None:
    """Wait for the lab."""
    browser.until(lambda: browser.text("#connection") == "live", "the page is live")
    browser.until(lambda: browser.texts("#tags a[aria-current]"), "the tag is shown")


def remembered(browser: Browser) -> str:
    """Everything that a page holds and may keep: its document, address, fields, storage, cookies."""
    return str(
        browser.run(
            "return [document.documentElement.outerHTML, location.href, document.title, document.cookie,"
            " ...[...document.querySelectorAll('input')].map((input) => input.value),"
            " JSON.stringify(localStorage), JSON.stringify(sessionStorage)].join('\\n')"
        )
    )


def streams(browser: Browser) -> list[int]:
    """The state of every event stream that was opened: 0 connecting, 1 open, 2 closed for good."""
    found: list[int] = browser.run("return window.sources.map((source) => source.readyState)")
    return found


def test_a_viewer_signs_in_by_keyboard_sees_the_lab_live_and_signs_out(
    browser: Browser, lab: RunningLab
) -> None:
    viewer = token(lab, "viewer")
    arrive(browser, lab)
    assert browser.run("return document.activeElement.id") == "token"
    assert browser.text("#sign-in .why") == "This lab asks for a token."
    assert "secret-tag" not in remembered(browser)
    assert browser.run("return document.getElementById('lab').childElementCount") == 0
    assert streams(browser) == []

    browser.write("#token", viewer["token"])
    browser.press(TAB)
    assert browser.run("return document.activeElement.textContent") == "Sign in"
    browser.press(ENTER)

    until_shown(browser)
    registered(lab, "told live")
    browser.run(f"location.hash = '{RUNS}'")
    browser.until(lambda: "told live" in browser.text("#view"), "what happens appears")
    assert browser.text("#who").startswith(f"{viewer['name']} (viewer)")
    assert browser.run("return window.loaded") == "once"
    assert not is_visible(browser, "#sign-in")
    assert viewer["token"][-43:] not in remembered(browser)
    assert COOKIE not in remembered(browser)
    assert all("/api/session" in line and "401" in line for line in browser.said())
    browser.open(url(lab))
    until_shown(browser)

    browser.click("#who button")

    until_asked(browser, "You are signed out.")
    assert "secret-tag" not in remembered(browser)
    assert browser.run("return fetch('/api/lab/status').then((answer) => answer.status)") == 401
    assert set(streams(browser)) == {2}


SESSION = "return fetch('/api/session').then((answer) => answer.status)"


def test_a_revoked_token_takes_the_lab_off_the_page(browser: Browser, lab: RunningLab) -> None:
    viewer = token(lab, "viewer")
    arrive(browser, lab)
    sign_in(browser, viewer["token"])
    until_shown(browser)
    registered(lab, "not for strangers")
    browser.run(f"location.hash = '{RUNS}'")
    browser.until(lambda: "not for strangers" in browser.text("#view"), "the row")
    browser.run("history.replaceState(null, '', '/')")

    lab.post("token/revoke", id=viewer["id"])

    until_asked(browser, "Signed out: ")
    assert "revoked" in browser.text("#sign-in .why")  # in other words where a request was under way
    assert "secret-tag" not in remembered(browser)
    assert "not for strangers" not in remembered(browser)
    assert not is_visible(browser, "#who")
    assert not is_visible(browser, "#connection")
    assert viewer["name"] not in remembered(browser)
    assert set(streams(browser)) == {2}, "no stream comes back"
    assert browser.run("return document.activeElement.id") == "token"
    worker = token(lab, "worker")
    for text, told in (
        ("nj_aaaaaaaaaa_" + "B" * 43, "This is no token of this lab. Ask an operator for one."),
        (worker["token"], f"This page needs the viewer role; {worker['name']} has the role worker."),
    ):
        sign_in(browser, text)
        until_complained(browser, told)
        browser.until(lambda: browser.run("return document.activeElement.id") == "token", "the focus is back")
        assert text[-43:] not in remembered(browser)
        assert "secret-tag" not in remembered(browser)
        browser.until(lambda: browser.run(SESSION) == 401, "its session is closed")
    sign_in(browser, token(lab, "agent")["token"])
    until_shown(browser)
    assert browser.run("return window.loaded") == "once"
    assert "(agent)" in browser.text("#who")


@contextmanager
def foreign_site(cookies: list[str] | None = None) -> Iterator[int]:
    """A page of somebody else's on this machine; answers its port, and notes the cookies that it is sent."""
    told = [] if cookies is None else cookies

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers.get("cookie", ""))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>foreign</title><body>")

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody wants to know."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


ATTACKS = {
    "a simple post": "return fetch(api('experiment/setup'), {...mine, method: 'POST', mode: 'no-cors',"
    " body: JSON.stringify({tag: 'foreign'})}).then((a) => a.type)",
    "a post with our header": "return fetch(api('experiment/setup'), {...mine, method: 'POST',"
    " headers: {'x-nightjar-page': '1'}, body: JSON.stringify({tag: 'foreign'})}).then((a) => a.text())",
    "a read": "return fetch(api('report/tags'), mine).then((a) => a.text())",
    "a read that sees no answer": "return fetch(api('report/tags'), {...mine, mode: 'no-cors'})"
    ".then((a) => a.text())",
    "signing out": "return fetch(api('session'), {...mine, method: 'DELETE'}).then((a) => a.text())",
    "the feed": "return new Promise((done) => { const feed = new EventSource(api('events?last=10'),"
    " {withCredentials: true}); feed.onopen = () => done('open');"
    " feed.onerror = () => { feed.close(); done('refused'); }; })",
    "the plot": "return new Promise((done) => { const image = new Image(); image.onload = () => done('shown');"
    " image.onerror = () => done('refused'); image.src = api('report/progress.svg?tag=secret-tag'); })",
    "the page in a frame": "return new Promise((done) => { const frame = document.createElement('iframe');"
    " frame.onload = () => { try { done(frame.contentDocument?.title ?? 'out of reach'); }"
    " catch { done('out of reach'); } }; frame.src = lab; document.body.append(frame); })",
}
EXPECTED = {
    "a simple post": "opaque",  # sent, and refused: what the lab holds afterwards tells
    "a post with our header": "TypeError",
    "a read": "TypeError",
    "a read that sees no answer": "",
    "signing out": "TypeError",
    "the feed": "refused",
    "the plot": "refused",
    "the page in a frame": "out of reach",
}


def test_a_foreign_page_can_do_nothing_with_a_signed_in_browser(browser: Browser, lab: RunningLab) -> None:
    arrive(browser, lab)
    sign_in(browser, token(lab, "operator")["token"])
    until_shown(browser)
    before = lab.get("report/tags")

    for host in ("127.0.0.1", "localhost"):  # of the same site, and of another one
        attack_from(host, browser, lab)

        assert lab.get("report/tags") == before
        browser.open(url(lab))
        until_shown(browser)


def attack_from(host: str, browser: Browser, lab: RunningLab) -> None:
    """Try everything from a page of this host, in vain."""
    with foreign_site() as port:
        browser.open(f"http://{host}:{port}/")
        answers = {
            name: browser.run(
                "const [lab, mine] = [arguments[0], {credentials: 'include'}];"
                " const api = (path) => `${lab}api/${path}`;"
                f" return (async () => {{ {attack} }})().catch((error) => error.name)",
                url(lab),
            )
            for name, attack in ATTACKS.items()
        }
        posted = []
        for path in ("experiment/setup", "session"):
            browser.open(f"http://{host}:{port}/")
            browser.run(
                "const form = document.createElement('form'); form.method = 'POST';"
                " form.action = arguments[0]; form.enctype = 'text/plain';"
                ' const field = document.createElement(\'input\'); field.name = \'{"tag": "foreign", "x": "\';'
                " field.value = '\"}'; form.append(field); document.body.append(form); form.submit();",
                f"{url(lab)}api/{path}",
            )
            browser.until(lambda: "are not served" in browser.text("body"), "the form is refused")
            posted.append(browser.text("body"))

    assert answers == EXPECTED
    assert all('"status": 403' in answer for answer in posted)


def test_the_session_s_cookie_goes_to_every_port_of_its_host_to_no_other_and_along_a_link_to_the_lab(
    browser: Browser, lab: RunningLab
) -> None:
    arrive(browser, lab)
    sign_in(browser, token(lab, "viewer")["token"])
    until_shown(browser)
    cookies: list[str] = []

    with foreign_site(cookies) as port:
        browser.open(f"http://localhost:{port}/")
        elsewhere = [*cookies]
        browser.run("location.href = arguments[0]", url(lab))
        until_shown(browser)
        browser.open(f"http://127.0.0.1:{port}/")

    assert COOKIE not in "".join(elsewhere)
    assert COOKIE in "".join(cookies)


WRITES = """
    const headers = {'content-type': 'application/json', 'x-nightjar-page': localStorage.getItem('nightjar-page')};
    return fetch('/api/tag/pause', {method: 'POST', headers, body: '{"tag": "t"}'}).then((answer) => answer.status);
"""


def until_signed_in_as_operator(browser: Browser) -> str:
    """Wait for the operator's name; answers the second secret of the session."""
    browser.until(lambda: is_visible(browser, "#who"), "somebody is signed in")
    assert browser.text("#who").startswith("operator")
    assert browser.run("return location.hash") == ""
    assert not is_visible(browser, "#visit")
    return str(browser.run("return localStorage.getItem('nightjar-page')"))


def test_an_open_lab_is_shown_to_everybody_and_a_link_signs_in_its_operator(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running_lab(tmp_path_factory.mktemp("open")) as opened:
        opened.start()
        opened.setup("t")
        browser.before_each_page(WATCH)
        browser.open(url(opened))
        until_shown(browser)
        assert not is_visible(browser, "#who")
        assert not is_visible(browser, "#sign-in")
        assert browser.text("#visit") == "View only: ./nightjar open signs you in"
        assert browser.run(WRITES) == 403
        said = [line for line in browser.said() if "403" not in line]
        assert said == []
        [first] = re.findall(r"sign in: (http://\S+)", opened.output())
        second = nightjar(opened.data, "open").stdout.strip()

        browser.open("about:blank")
        browser.open(page_to(first, Settings.model_validate({"data": opened.data})).as_uri())
        kept = [until_signed_in_as_operator(browser)]
        for accept in (False, True):
            browser.open("about:blank")
            browser.open(second)
            assert browser.answer(accept) == "You are operator (operator). Sign in again with this link?"
            kept.append(until_signed_in_as_operator(browser))
        assert kept[0] == kept[1] != kept[2], "a link that was refused has changed nothing"
        until_shown(browser)
        assert browser.run(WRITES) == 200
        browser.click("#who button")
        browser.until(lambda: is_visible(browser, "#visit"), "a visitor looks on again")
        until_shown(browser)
        browser.open("about:blank")
        browser.open(first)
        browser.until(lambda: is_visible(browser, "#trouble"), "the link was used")
        assert "used or older" in browser.text("#trouble")

        root = token(opened, "operator")

        until_asked(browser, "Signed out: this lab asks for a token.")
        assert set(streams(browser)) == {2}
        sign_in(browser, root["token"])
        until_shown(browser)
