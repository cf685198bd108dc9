"""The view of all runs: filter, sort, columns, selection, live."""

from __future__ import annotations

from tests.journeys.running import RunningLab
from tests.page.pages import HOSTILE, Page, measured


def numbers(page: Page) -> list[str]:
    """The numbers of the runs in sight."""
    return [row[0] for row in page.rows()]


def test_every_run_has_a_row_with_what_changed_and_its_gain_and_a_title_sorts_them(
    page: Page, lab: RunningLab, tag: str
) -> None:
    measured(lab, tag, 3.0, 2.5, 4.0, agent="ada")

    page.show(tag=tag, view="runs")

    rows = [
        ["3", "discard", "4.000000", "−1.500000", "LR 0.1 -> 4.0"],
        ["2", "keep", "2.500000", "+0.500000", "LR 0.1 -> 2.5"],
        ["1", "first", "3.000000", "", "LR 0.1 -> 3.0"],
    ]
    page.settles(lambda: [[*row[:4], row[5]] for row in page.rows()], rows)

    measured(lab, tag, 2.0, agent="ada")

    rows.insert(0, ["4", "keep", "2.000000", "+0.500000", "LR 0.1 -> 2.0"])
    page.settles(lambda: [[*row[:4], row[5]] for row in page.rows()], rows)
    page.click("val_bpb", "th button")
    page.settles(lambda: numbers(page), ["3", "1", "2", "4"])
    page.click("val_bpb ↓", "th button")
    page.settles(lambda: numbers(page), ["4", "2", "1", "3"])
    assert page.said() == []


def test_numbers_are_whole_and_a_tiny_one_has_the_digits_of_the_noise(
    page: Page, lab: RunningLab, tag: str
) -> None:
    _, best, *_ = measured(lab, tag, 3.0, 2.5, 900.0, 2.50001)
    retest = lab.post("experiment/retest", experiment_id=best, train=False)["retest_id"]
    lab.post("experiment/complete", experiment_id=retest, val_bpb=2.52)

    page.show(tag=tag, view="runs", q="2.50001")
    page.settles(lambda: [row[3] for row in page.rows()], ["\u22120.000"])
    page.show(tag=tag, view="runs")

    page.browser.until(lambda: "900.000" in [row[2] for row in page.rows()], "the outlier")
    cut = "return [...document.querySelectorAll('td.number')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert page.run(cut) == 0


def test_a_filter_stands_in_the_address_and_shares_by_it(page: Page, lab: RunningLab, tag: str) -> None:
    measured(lab, tag, 3.0, 2.5, 4.0)
    page.show(tag=tag, view="runs", q="status:keep", sort="value")
    page.settles(lambda: numbers(page), ["2", "1"])

    page.browser.write("input[type=search]", " idea 3.0")

    page.settles(lambda: numbers(page), ["1"])
    wanted = {"tag": tag, "view": "runs", "q": "status:keep idea 3.0", "sort": "value"}
    page.settles(page.address, wanted)


def test_chosen_runs_are_compared(page: Page, lab: RunningLab, tag: str) -> None:
    names = measured(lab, tag, 3.0, 2.5, 4.0)
    page.show(tag=tag, view="runs")
    page.browser.until(lambda: len(page.rows()) == 3, "the rows")

    def chosen() -> list[str]:
        return page.address().get("ids", "").split(",")

    for nth, name in enumerate(names[:2]):
        page.press(f"input[aria-label='choose {name}']")
        page.settles(chosen, names[: nth + 1])
    page.click("Compare 2")

    page.settles(lambda: page.address().get("view"), "compare")
    assert page.address()["ids"].split(",") == names[:2]


def test_a_near_miss_and_a_claim_are_named(page: Page, lab: RunningLab, tag: str) -> None:
    lab.until_status(lab.submit(tag, config_delta={"VALUE": 3.0}), "keep")
    lab.until_status(lab.submit(tag, config_delta={"VALUE": 3.0005}), "discard")
    measured(lab, tag, 2.0)

    page.show(tag=tag, view="runs")

    page.settles(lambda: [row[1] for row in page.rows()], ["discard ?", "near miss", "first"])
    assert page.rows()[0][3] == "", "a claim has no gain"


def test_an_agent_s_text_is_text_and_runs_nothing(page: Page, lab: RunningLab, tag: str) -> None:
    measured(lab, tag, 3.0, diff_summary=HOSTILE)

    page.show(tag=tag, view="runs")

    page.until(HOSTILE)
    assert page.run("return [document.querySelectorAll('#view img').length, window.owned ?? null]") == [
        0,
        None,
    ]
    assert page.said() == []


def test_a_row_with_the_keyboard_s_focus_shows_its_cut_texts_whole(
    page: Page, lab: RunningLab, tag: str
) -> None:
    whole = "a wider model " * 8
    measured(lab, tag, 3.0, diff_summary=whole)
    page.show(tag=tag, view="runs")
    page.settles(lambda: numbers(page), ["1"])
    focused = (
        "document.querySelector('#view tbody td.column-number a').focus();"
        "return document.activeElement.innerText"
    )
    page.browser.press("\ue004")  # Tab: from here on the focus is the keyboard's

    page.settles(lambda: page.run(focused), "1")
    page.until(whole.strip(), "#whole:not([hidden])")
    page.browser.press("\ue00c")

    page.until_gone("#whole:not([hidden])")
