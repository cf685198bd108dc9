"""The feed of events: live, filtered, paused, after gaps; dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.browser import Browser
from tests.journeys.running import RunningLab, running_lab
from tests.page.pages import HOSTILE, Page, measured, registered

WIDTHS = ("narrow", "wider", "deep")


def subjects(page: Page) -> list[str]:
    """Names of what the events are of, oldest first."""
    return [row[2] for row in page.rows()][::-1]


@contextmanager
def redis_of(lab: RunningLab) -> Iterator[redis.Redis]:
    """The lab's own Redis."""
    url = json.loads((lab.data / "redis.json").read_text())["url"]
    with closing(redis.Redis.from_url(url)) as found:
        yield found


@pytest.fixture
def server(lab: RunningLab) -> Iterator[redis.Redis]:
    with redis_of(lab) as found:
        yield found


def test_events_appear_as_they_happen_with_the_gain_of_the_table(
    page: Page, lab: RunningLab, tag: str
) -> None:
    page.show(view="events", of=tag, type="experiment.finished")
    page.until("No event matches this filter.")

    first, better = measured(lab, tag, 3.0, 2.5)

    page.settles(
        lambda: [[*row[1:3], row[3][:3], row[4][:4]] for row in page.rows()],
        [["experiment.finished", better, "2.5", "+0.5"], ["experiment.finished", first, "3.0", ""]],
    )
    page.click(better, "#view td a")
    page.settles(page.address, {"tag": tag, "run": better})
    assert page.said() == []


def test_a_filter_by_tag_type_and_text_stands_in_the_address(page: Page, lab: RunningLab, tag: str) -> None:
    names = [registered(lab, tag, hypothesis=f"{width} model") for width in WIDTHS]
    page.show(view="events")

    page.browser.choose("#view select[name=of]", tag)
    page.browser.choose("#view select[name=type]", "experiment.registered")
    page.settles(lambda: subjects(page), names)
    page.browser.write("#view input[type=search]", "wider model")

    page.settles(lambda: subjects(page), [names[1]])
    wanted = {"view": "events", "of": tag, "type": "experiment.registered", "q": "wider model"}
    page.settles(page.address, wanted)


def test_a_paused_feed_stands_still_and_then_shows_what_it_missed(
    page: Page, lab: RunningLab, tag: str
) -> None:
    page.show(view="events", of=tag)
    page.settles(lambda: subjects(page), [tag])
    page.click("Pause")

    name = registered(lab, tag)

    page.browser.until(
        lambda: page.texts(".pause") not in (["Pause"], ["Resume (0)"]), "the new one is counted"
    )
    assert subjects(page) == [tag]
    page.press(".pause")
    page.settles(lambda: subjects(page), [tag, name])


def test_the_feed_goes_on_after_the_web_process_was_killed(page: Page, lab: RunningLab, tag: str) -> None:
    page.show(view="events", of=tag, type="experiment.registered")
    names = [registered(lab, tag) for _ in range(5)]
    page.settles(lambda: subjects(page), names)

    lab.process("triggers.web").kill()
    page.until("reconnecting", "#connection")
    lab.until(lambda: lab.get("lab/status")["counts"].get("web"), "the web process is back")
    names += [registered(lab, tag) for _ in range(5)]

    page.until("live", "#connection")
    page.settles(lambda: subjects(page), names)
    names += [registered(lab, tag)]
    page.settles(lambda: subjects(page), names)


def test_a_gap_in_the_feed_is_shown(browser: Browser, tmp_path: Path) -> None:
    with running_lab(tmp_path) as lab:
        lab.start("--cpu", "0")
        lab.setup("mar11")
        page = Page(browser, lab)
        page.show(view="events", of="mar11")
        page.settles(lambda: subjects(page), ["mar11"])
        web = lab.process("triggers.web")
        web.suspend()  # the page sees nothing of what follows, which must be over before `up` ends the silent web
        try:
            with redis_of(lab) as server:
                server.xadd("{lab}:events", entry("mar11", "lost"))
                server.xadd("{lab}:events", entry("mar11", "kept"))
                server.xtrim("{lab}:events", maxlen=1, approximate=False)
        finally:
            web.kill()

        page.settles(lambda: subjects(page), ["mar11", "", "kept"])
        page.browser.until(lambda: "are no longer kept" in page.rows()[1][5], "the gap")


def entry(tag: str, subject: str) -> dict[Any, Any]:
    time = "2026-01-01T00:00:00Z"
    return {"type": "tag.created", "time": time, "tag": tag, "subject": subject, "data": "{}"}


def test_what_is_read_stays_in_its_place_while_events_come(page: Page, lab: RunningLab, tag: str) -> None:
    for _ in range(60):
        registered(lab, tag)
    page.show(view="events", of=tag, type="experiment.registered")
    page.browser.until(lambda: len(page.rows()) > 30, "the events")
    page.run("document.querySelector('#view .scroll').scrollTop = 400")
    seen = (
        "const top = document.querySelector('#view .scroll').getBoundingClientRect().top + 40;"
        "return document.elementFromPoint(500, top).closest('tr')?.dataset.key"
    )
    page.browser.until(lambda: page.run(seen), "a row")
    before = page.run(seen)

    for _ in range(3):
        registered(lab, tag)

    page.settles(lambda: page.texts(".bar .note"), ["63 events"])
    page.settles(lambda: page.run(seen), before)


def dead_letter(server: redis.Redis, lab: RunningLab, tag: str, binding: str) -> str:
    """The id of a letter that says that this function could not handle the tag's opening."""
    (event,) = lab.post("event/list", tag=tag, types=["tag.created"])["events"]
    fields: dict[Any, Any] = {"binding": binding, "error": HOSTILE, "deliveries": "8", "time": event["time"]}
    found: Any = server.xadd("{lab}:dead_letters", fields | {"event": json.dumps(event)})
    return str(found.decode())


def test_an_operator_redrives_and_discards_dead_letters(
    page: Page, lab: RunningLab, tag: str, server: redis.Redis
) -> None:
    good = dead_letter(server, lab, tag, "search::adapt")
    gone = dead_letter(server, lab, tag, "no::such")
    page.show(view="events")
    page.until("2 dead letters", "#letters h2")
    page.until("none behind", ".handlers")
    page.until(HOSTILE, "#letters")
    assert page.texts("#letters button") == [], "a visitor sees no controls"
    page.sign_in()
    page.show(view="events")

    page.click("Redrive", f"#letters [data-key='{good}'] button")
    question = page.confirm("Redrive")
    page.browser.until(lambda: len(page.texts("#letters li")) == 1, "one is left")

    assert question == "It is handled again. If that fails again, it comes back."
    page.click("Redrive", f"#letters [data-key='{gone}'] button")
    page.click("Redrive", "#asking[open] button")
    page.until("no process takes events for no::such", "#asking .problem")
    page.click("Cancel", "#asking button")
    page.until_gone("#asking[open]")
    page.click("Discard", f"#letters [data-key='{gone}'] button")
    page.confirm("Discard")
    page.until_gone("#letters:not([hidden]) li")
    assert lab.post("event/dead")["total"] == 0
