"""The live page in a real browser, over a real lab."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from tests.browser import Browser
from tests.journeys.running import RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script><b>wider</b>'
ESCAPE = "\ue00c"
ENTER = "\ue007"
_tags = (f"page{nth}" for nth in itertools.count())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start()
        yield found


@pytest.fixture
def tag(lab: RunningLab) -> str:
    """A tag of its own for each test."""
    name = next(_tags)
    lab.setup(name)
    return name


def registered(lab: RunningLab, tag: str, **changes: str) -> str:
    """The id of an experiment that its agent trains itself."""
    body = {"hypothesis": "h", "category": "other", "commit_sha": "abc1234", "diff_summary": "d"} | changes
    return str(lab.post("experiment/register", tag=tag, **body)["experiment_id"])


def url(lab: RunningLab, chosen: str = "") -> str:
    return f"http://127.0.0.1:{lab.port}/{chosen}"


def show(browser: Browser, lab: RunningLab, tag: str, more: str = "") -> None:
    """Open the page at a tag, and wait until it is live."""
    browser.open(url(lab, f"#tag={tag}{more}"))
    browser.until(lambda: browser.text("#connection") == "live", "the page is live")
    browser.until(lambda: browser.texts("#tags a[aria-current]"), "the tag is shown as chosen")


def rows(browser: Browser) -> list[str]:
    return browser.texts("#experiments tbody tr")


def subjects(browser: Browser) -> list[str]:
    """Whom the feed tells of, oldest first."""
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('#events li')].map((e) => e.children[2].innerText).reverse()"
    )
    return found


def test_the_page_shows_a_running_lab(browser: Browser, lab: RunningLab, tag: str) -> None:
    names = [lab.submit(tag, config_delta={"VALUE": value}, agent="ada") for value in (3.0, 2.5, 4.0)]
    for name in names:
        lab.until_status(name, "keep", "discard")

    show(browser, lab, tag)

    browser.until(lambda: len(rows(browser)) == 3, "every experiment has a row")
    assert [row.split()[:4] for row in rows(browser)] == [
        ["3", "discard", "4.000000", "▼"],
        ["2", "keep", "2.500000", "▲"],
        ["1", "keep", "①", "3.000000"],
    ]
    assert "ada" in rows(browser)[0]
    assert "2 kept of 3" in browser.text("#tags a[aria-current]")
    browser.until(
        lambda: browser.run("return document.querySelector('.plot img').naturalWidth > 0"), "the plot"
    )
    assert "best 2.500000" in browser.run("return document.querySelector('.plot img').alt")
    browser.until(
        lambda: browser.run("return document.title") == f"2.500000 {tag} · Nightjar", "the best as title"
    )
    assert any("cpu0" in gpu for gpu in browser.texts("#gpus li"))
    health = browser.text("#health")
    assert "web" in health
    assert "durable" in health
    assert browser.said() == []


BUSY = """
    const ask = window.fetch;
    window.refusals = 0;
    window.fetch = (path, options) => {
        if (!path.includes("progress.svg") || window.refusals === 2) return ask(path, options);
        window.refusals += 1;
        return Promise.resolve(Response.json({ detail: "busy", retry_after: 0.1 }, { status: 429 }));
    };
"""


def test_a_plot_that_the_lab_was_too_busy_for_is_asked_for_again(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    lab.until_status(lab.submit(tag), "keep")
    browser.before_each_page(BUSY)

    show(browser, lab, tag)

    browser.until(
        lambda: browser.run("return document.querySelector('.plot img').naturalWidth > 0"), "the plot"
    )
    assert browser.run("return window.refusals") == 2


def test_the_results_come_first_with_gain_and_pace(browser: Browser, lab: RunningLab, tag: str) -> None:
    for value in (3.0, 2.5):
        lab.until_status(lab.submit(tag, config_delta={"VALUE": value}), "keep")

    show(browser, lab, tag)

    browser.until(lambda: "+0.500000" in browser.text("#night"), "the gain")
    shown = browser.text("#night")
    assert "2.500000" in shown
    assert "3.000000 to 2.500000" in shown
    assert "3 -> 2.5 (one run)" in shown
    assert "ago" in shown
    above = browser.run(
        "const top = (id) => document.querySelector(id).getBoundingClientRect().top;"
        " return ['#tags', '#progress', '#gpus'].every((id) => top('#night') <= top(id))"
    )
    assert above
    assert browser.said() == []


def test_a_swarm_is_shown_by_what_it_is_judged_by(browser: Browser, lab: RunningLab) -> None:
    tag = next(_tags)
    lab.post(
        "dimension/define", tag=tag, dimensions=[{"name": "LR", "dtype": "float", "min": 0.1, "max": 0.2}]
    )
    lab.http.post("/register", json={"worker_id": tag, "gpu_type": "H100", "baseline_bpb": 1.0, "tag": tag})
    first = lab.http.get(f"/next_config/{tag}").json()
    done = first["run_id"]
    told = {
        "worker_id": tag,
        "exp_id": done,
        "config": {},
        "config_delta": {},
        "val_bpb": 0.75,
        "delta_bpb": -0.25,
    }
    lab.http.post("/result", json={**told, "duration_seconds": 2.5})
    going = lab.http.get(f"/next_config/{tag}").json()["run_id"]
    lab.http.post("/tick", json={"id": going, "p": 0.1, "m": 1.5, "d": 0.5})

    show(browser, lab, tag, f"&run={done}")

    browser.until(lambda: len(rows(browser)) == 2, "every run has a row")
    assert browser.text("#experiments th.metric") == "delta_bpb"
    assert "-0.250000" in rows(browser)[1]
    assert "0.5000" in rows(browser)[0]
    assert "val_bpb" not in browser.text("#tags a[aria-current]")
    browser.until(lambda: browser.texts("dialog dl"), "the details")
    shown = browser.text("dialog")
    assert "-0.250000" in browser.text("dialog header")
    assert "0.750000, its worker's baseline 1.000000" in shown
    assert "Only the commit is known" not in shown
    constants = browser.text("dialog .constants")
    assert constants == "\n".join(f"{name} = {value}" for name, value in first["config_delta"].items())
    assert browser.said() == []


def test_an_unknown_tag_offers_the_known_ones(browser: Browser, lab: RunningLab, tag: str) -> None:
    browser.open(url(lab, "#tag=no-such-tag"))
    browser.until(
        lambda: any("There is no tag no-such-tag" in told for told in browser.texts("#unknown")), "it is told"
    )

    browser.run(f"document.querySelector('#unknown a[href=\"#tag={tag}\"]').click()")

    browser.until(
        lambda: any(tag in told for told in browser.texts("#tags a[aria-current]")), "the known one is shown"
    )
    assert browser.texts("#unknown:not([hidden])") == []


def test_the_details_of_a_run_that_reports_nothing_tell_the_lines_that_it_lacks(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    lab.post("search/set-policy", tag=tag, policy={"stopping.rule": "stochastic"})
    mute = lab.commit({"train.py": 'import prepare\nprint("val_bpb: 1.0")\n'})
    name = lab.submit(tag, commit_sha=mute)
    lab.until_status(name, "keep")

    show(browser, lab, tag, f"&run={name}")

    browser.until(lambda: browser.texts("dialog .no-signal"), "the lines")
    assert "from nightjar_report import report" in browser.text("dialog .no-signal")


def test_a_click_anywhere_in_a_row_opens_its_details(browser: Browser, lab: RunningLab, tag: str) -> None:
    name = registered(lab, tag, hypothesis="a wider model")
    show(browser, lab, tag)
    browser.until(lambda: len(rows(browser)) == 1, "the row")

    browser.click("#experiments tbody td.long")

    browser.until(lambda: browser.texts("dialog[open] h2") == [name], "the details")


def test_the_page_and_its_dialog_fit_a_phone(browser: Browser, lab: RunningLab, tag: str) -> None:
    name = registered(lab, tag, hypothesis="a wider model " * 20)
    browser.size(390, 844)
    try:
        show(browser, lab, tag, f"&run={name}")
        browser.until(lambda: browser.texts("dialog[open] h2") == [name], "the details")
        wide, window = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        left, right = browser.run(
            "const { left, right } = document.querySelector('dialog').getBoundingClientRect(); return [left, right]"
        )
    finally:
        browser.size(1280, 900)

    assert wide <= window
    assert 0 <= left < right <= window


def test_a_phone_shows_values_gains_and_hypotheses_whole(browser: Browser, lab: RunningLab, tag: str) -> None:
    for value in (3.0, 2.5):
        lab.until_status(lab.submit(tag, config_delta={"VALUE": value}, hypothesis="a wider model"), "keep")
    browser.size(390, 844)
    try:
        show(browser, lab, tag)
        browser.until(lambda: len(rows(browser)) == 2, "every experiment has a row")
        cut = browser.run(
            "return [...document.querySelectorAll('#experiments th, #experiments td')]"
            ".filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText)"
        )
        newest = rows(browser)[0].split()
    finally:
        browser.size(1280, 900)

    assert newest == ["2", "keep", "2.500000", "▲", "0.500000", "a", "wider", "model"]
    assert cut == []


def test_the_table_shows_the_status_of_a_near_miss_and_the_longest_category_whole(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    for value in (3.0, 3.0005):
        name = lab.submit(tag, config_delta={"VALUE": value}, category="regularization", agent="ann")
        lab.until_status(name, "keep", "discard")

    show(browser, lab, tag)

    browser.until(lambda: len(rows(browser)) == 2, "every experiment has a row")
    assert rows(browser)[0].split()[:3] == ["2", "discard", "≈"]
    cut = browser.run(
        "return [...document.querySelectorAll('#experiments td:not(.long)')]"
        ".filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText)"
    )
    assert cut == []


def test_the_page_shows_the_agents_at_work_and_what_they_cost(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    for name, cost in (("ada", 1.25), ("bob", 0.5)):
        lab.post("agent/announce", tag=tag, agent=name, state="working", starts=1, tokens=1000, cost_usd=cost)

    show(browser, lab, tag)

    browser.until(
        lambda: "2 working, 2,000 tokens, 1.75 USD" in browser.text("#health"), "the agents are in the strip"
    )
    for name in ("ada", "bob"):
        lab.post("agent/announce", tag=tag, agent=name, state="ended")
    assert browser.said() == []


def test_what_only_its_agent_has_measured_is_marked_and_shown_without_a_gain(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    lab.until_status(lab.submit(tag, config_delta={"VALUE": 3.0}), "keep")
    name = registered(lab, tag, hypothesis="wider", diff_summary="WIDTH 2")
    lab.post("experiment/complete", experiment_id=name, val_bpb=4.0)

    show(browser, lab, tag, f"&run={name}")

    browser.until(lambda: len(rows(browser)) == 2, "every experiment has a row")
    newest = rows(browser)[0].split()
    assert newest[:4] == ["2", "discard", "?", "4.000000"]
    assert not {"▲", "▼"} & set(newest)
    browser.until(lambda: browser.texts("dialog dl"), "the details")
    assert "only its agent has measured it" in browser.text("dialog dl")
    assert browser.said() == []


def test_what_happens_appears_without_a_reload(browser: Browser, lab: RunningLab, tag: str) -> None:
    show(browser, lab, tag)
    browser.run("window.loaded = 'once'")
    assert rows(browser) == []

    name = lab.submit(tag, config_delta={"VALUE": 1.5})
    lab.until_status(name, "keep")

    browser.until(
        lambda: [r.split()[:4] for r in rows(browser)] == [["1", "keep", "①", "1.500000"]], "the new row"
    )
    browser.until(
        lambda: browser.run("return document.title").startswith("1.500000"), "the new best as title"
    )
    browser.until(lambda: any("best.changed" in e for e in browser.texts("#events li")), "the event")
    assert browser.run("return window.loaded") == "once"
    assert browser.said() == []


def test_an_agent_s_text_is_text_and_runs_nothing(browser: Browser, lab: RunningLab, tag: str) -> None:
    name = registered(lab, tag, hypothesis=HOSTILE, agent="a", diff_summary=HOSTILE, diff=f"+{HOSTILE}\n")
    lab.post("experiment/crash", experiment_id=name, error=HOSTILE)

    show(browser, lab, tag, f"&run={name}")

    browser.until(lambda: browser.texts("dialog .error"), "the details")
    assert browser.text("dialog .error") == HOSTILE
    assert browser.text("dialog .hypothesis") == HOSTILE
    assert HOSTILE in browser.text("dialog .patch")
    browser.until(lambda: any(HOSTILE in row for row in rows(browser)), "the row")
    browser.until(lambda: any(HOSTILE in event for event in browser.texts("#events li")), "the event")
    assert browser.run("return document.querySelectorAll('img[src=x], body script, body b b').length") == 0
    assert browser.run("return window.owned") is None
    assert browser.said() == []


def test_markup_that_got_in_by_a_mistake_would_be_refused(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    show(browser, lab, tag)

    refused = browser.run(
        "try { document.body.innerHTML = arguments[0]; return 'taken' } catch (error) { return error.name }",
        HOSTILE,
    )

    assert refused == "TypeError"
    assert browser.run("return window.owned") is None


def test_the_feed_goes_on_after_the_web_process_was_killed(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    show(browser, lab, tag)
    browser.choose("#events select[name=type]", "experiment.registered")
    names = [registered(lab, tag, commit_sha=f"abc{nth:04x}") for nth in range(5)]
    browser.until(lambda: subjects(browser)[-1:] == names[-1:], "the events before")

    web = lab.process("triggers.web")
    web.kill()
    browser.until(lambda: browser.text("#connection") == "reconnecting", "the page says that it is cut off")
    lab.until(lambda: lab.get("lab/status")["counts"].get("web"), "the web process is back")
    names += [registered(lab, tag, commit_sha=f"abd{nth:04x}") for nth in range(5)]

    browser.until(lambda: browser.text("#connection") == "live", "the page is live again")
    browser.until(lambda: subjects(browser)[-1:] == names[-1:], "the events after")
    names += [registered(lab, tag, commit_sha="abe0000")]
    browser.until(lambda: subjects(browser)[-1:] == names[-1:], "events go on")
    assert [s for s in subjects(browser) if s.startswith(f"{tag}-")] == names
    browser.until(lambda: len(rows(browser)) == len(names), "the table was read again")


def test_a_paused_feed_stands_still_and_then_tells_what_it_missed(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    show(browser, lab, tag)
    browser.choose("#events select[name=tag]", tag)
    browser.until(lambda: subjects(browser) == [tag], "the tag's own event")
    browser.click("#events .pause")

    name = registered(lab, tag)

    browser.until(lambda: len(rows(browser)) == 1, "the table goes on")
    browser.until(lambda: browser.text("#events .pause") not in ("Pause", "Resume (0)"), "the new is counted")
    assert subjects(browser) == [tag]
    browser.click("#events .pause")
    browser.until(lambda: subjects(browser) == [tag, name], "what was held back")


def test_a_gap_in_the_feed_is_told_and_everything_read_again(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    show(browser, lab, tag)
    browser.choose("#events select[name=tag]", tag)
    browser.until(lambda: subjects(browser) == [tag], "the tag's own event")
    web = lab.process("triggers.web")
    url = json.loads((lab.data / "redis.json").read_text())["url"]
    with closing(redis.Redis.from_url(url)) as server:
        web.suspend()  # the page sees nothing of what follows, which must be over before `up` ends the silent web
        try:
            server.xadd("{lab}:events", _entry(tag, "lost"))
            server.xadd("{lab}:events", _entry(tag, "kept"))
            server.xtrim("{lab}:events", maxlen=1, approximate=False)
        finally:
            web.kill()

    browser.until(
        lambda: any(e.split()[1] == "reset" for e in browser.texts("#events li")), "the gap is told"
    )
    browser.until(lambda: subjects(browser) == [tag, "", "kept"], "what is kept is told")


def _entry(tag: str, subject: str) -> dict[Any, Any]:
    return {
        "type": "tag.created",
        "time": "2026-01-01T00:00:00Z",
        "tag": tag,
        "subject": subject,
        "data": "{}",
    }


TALKS = """
import time
from nightjar_report import report

for step in range(1, 2000):
    print("step", step, flush=True)
    report(3 - step / 2000, step / 2000)
    time.sleep(0.1)
"""


def test_a_run_s_log_and_curve_grow_while_it_is_looked_at(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    name = lab.submit(tag, commit_sha=lab.commit({"train.py": TALKS}))
    lab.until_training(name)
    show(browser, lab, tag, f"&run={name}")

    def points() -> int:
        curve = "document.querySelector('dialog .curve polyline')"
        return int(browser.run(f"return {curve}?.points.length ?? 0"))

    def steps() -> int:
        return len(browser.text("dialog .said").splitlines())

    browser.until(lambda: points() > 2 and steps() > 2, "the curve and the log")
    browser.run("window.node = document.querySelector('dialog .said')")
    seen, drawn = steps(), points()
    browser.until(lambda: steps() > seen and points() > drawn, "both grow")
    same = browser.run("return window.node.isConnected")
    lab.post("experiment/stop", experiment_id=name, reason="seen enough")

    browser.until(lambda: "stopped" in browser.text("dialog header"), "the end")
    assert same, "the log is not made anew while somebody reads it"
    assert steps() > seen
    assert points() > drawn
    assert "at the start" in browser.text("dialog .curve figcaption")
    assert browser.said() == []


def test_the_keyboard_opens_and_closes_the_details(browser: Browser, lab: RunningLab, tag: str) -> None:
    name = registered(lab, tag, hypothesis="a wider model")
    show(browser, lab, tag)
    browser.until(lambda: len(rows(browser)) == 1, "the row")

    browser.run("document.querySelector('#experiments tbody a').focus()")
    browser.press(ENTER)
    browser.until(lambda: browser.texts("dialog[open] h2") == [name], "the details")
    inside = browser.run("return document.querySelector('dialog').contains(document.activeElement)")
    browser.press(ESCAPE)

    browser.until(lambda: not browser.texts("dialog[open]"), "the details are gone")
    assert inside
    assert f"run={name}" not in browser.run("return location.hash")
    focused = browser.run("return document.activeElement.closest('#experiments') !== null")
    assert focused, "the focus is back where it was"


def test_an_experiment_that_is_not_there_is_told(browser: Browser, lab: RunningLab, tag: str) -> None:
    show(browser, lab, tag, f"&run={tag}-99")

    browser.until(lambda: f"there is no experiment '{tag}-99'" in browser.text("dialog"), "the refusal")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_is_light_or_dark_as_its_reader_likes(
    browser: Browser, lab: RunningLab, tag: str, dark: bool
) -> None:
    browser.dark(dark)
    show(browser, lab, tag)

    ground, text = browser.run(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color].map((c) =>"
        " c.match(/\\d+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0))"
    )

    assert (ground < text) is dark
    assert abs(ground - text) > 400, "readable"
    wide, window = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window, "no sideways scrolling at 1280 px"
    assert browser.said() == []


def test_nothing_jumps_while_things_happen(browser: Browser, lab: RunningLab, tag: str) -> None:
    registered(lab, tag, commit_sha="abc0000")
    show(browser, lab, tag)
    browser.until(lambda: len(rows(browser)) == 1, "the first row")
    browser.until(
        lambda: browser.run("return document.querySelector('.plot img').naturalWidth > 0"), "the plot"
    )
    places = (
        "return ['#health', '#tags', '#progress', '#experiments', '#gpus', '#events']"
        ".map((id) => Math.round(document.querySelector(id).getBoundingClientRect().top))"
    )
    before = browser.run(places)

    name = lab.submit(tag)
    lab.until_status(name, "keep", "discard")
    browser.until(lambda: "keep" in " ".join(rows(browser)), "it is shown")

    assert browser.run(places) == before


def test_an_empty_lab_says_what_to_do_next(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running_lab(tmp_path_factory.mktemp("empty")) as empty:
        empty.start()
        browser.open(url(empty))
        browser.until(lambda: browser.texts("#empty h2") == ["No research yet"], "the first steps")
        assert "./nightjar setup mar11" in browser.text("#empty")
        assert browser.said() == []
        browser.size(390, 844)
        wide, window = browser.run("return [document.documentElement.scrollWidth, screen.width]")
        browser.size(1280, 900)
        assert wide <= window

        empty.setup("first")

        browser.until(
            lambda: any("first" in tag for tag in browser.texts("#tags a")), "the page fills by itself"
        )
        assert browser.run("return document.getElementById('empty').hidden")
