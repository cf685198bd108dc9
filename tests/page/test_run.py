"""The view of one run: its verdict, change, curve and log, live, and what an operator does with it."""

from __future__ import annotations

from tests.journeys.running import RunningLab
from tests.page.pages import BASE_PATCH, CHART, Page, measured, registered

ENTER = "\ue007"
IN_SIGHT = f"""{CHART}
    const {{ series, yAxis }} = chart.getOption();
    const [, value] = series.at(-1).data.at(-1);
    return yAxis[0].min < value && value < yAxis[0].max;
"""
TALKS = """
import time
from nightjar_report import report

for step in range(1, 2000):
    print("step", step, flush=True)
    report(3 - step / 2000, step / 2000)
    time.sleep(0.1)
"""


def figures(page: Page) -> dict[str, str]:
    """The figures on top by their names."""
    found: dict[str, str] = page.run(
        "return Object.fromEntries([...document.querySelectorAll('#view .figures > div')]"
        ".map((e) => [e.children[0].innerText, e.children[1].innerText]))"
    )
    return found


def points(page: Page) -> int:
    """Points of the run's own curve, by the chart itself."""
    return sum(len(series["data"]) for series in page.series()[-1:])


def facts(page: Page) -> str:
    return "\n".join(page.texts("#view .facts"))


def test_the_verdict_stands_first_with_value_gain_and_why(page: Page, lab: RunningLab, tag: str) -> None:
    (first,) = measured(lab, tag, 3.0)
    (name,) = measured(lab, tag, 2.5, diff_summary="LR 0.1 -> 0.2", agent="ada")

    page.show(tag=tag, run=name)

    page.until(f"Better than {first}.", "#view .headline")
    wanted = {"Verdict": "keep", "val_bpb": "2.500000", "Gain": "+0.500000"}
    page.settles(lambda: {name: figures(page).get(name, "") for name in wanted}, wanted)
    page.until("LR 0.1 -> 0.2", "#view h2")
    page.until("nightjar take", "#view .next")
    sizes = page.run(
        "return [...document.querySelectorAll('#view *')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    largest = page.run(
        "return parseFloat(getComputedStyle(document.querySelector('#view dd .badge')).fontSize)"
    )
    assert largest == max(sizes)
    assert page.said() == []


def test_the_change_is_that_against_the_parent_or_the_base_and_parents_and_children_are_links(
    page: Page, lab: RunningLab, tag: str
) -> None:
    lines = "-WIDTH = 1\n+WIDTH = 2\n"
    (parent,) = measured(lab, tag, 3.0, diff=f"{BASE_PATCH}{lines} DEPTH = 1\n")
    both = f"{BASE_PATCH}{lines}-DEPTH = 1\n+DEPTH = 9\n"
    (name,) = measured(lab, tag, 2.5, diff=both, parent_id=parent)

    page.show(tag=tag, run=name)

    page.until("+DEPTH = 9", "#view .patch")
    page.browser.until(
        lambda: "+WIDTH = 2" not in page.texts("#view .patch")[0], "the parent's change is not in it"
    )
    page.click("against the base")
    page.until("+WIDTH = 2", "#view .patch")
    assert page.address()["against"] == "base"
    page.settles(lambda: page.texts("#view .choice button[aria-pressed=true]"), ["against the base"])
    page.click(f"against {parent}")
    page.browser.until(lambda: "+WIDTH = 2" not in page.texts("#view .patch")[0], "the parent's again")

    page.click(parent, "#view .facts a")

    page.browser.until(lambda: "built on it" in facts(page), "the parent names its child")
    assert page.address() == {"tag": tag, "run": parent}
    page.click(name, "#view .facts a")
    page.settles(lambda: page.address()["run"], name)
    assert page.said() == []


def test_log_and_curve_grow_while_they_are_looked_at(page: Page, lab: RunningLab, tag: str) -> None:
    name = lab.submit(tag, commit_sha=lab.commit({"train.py": TALKS}))
    lab.until_training(name)
    page.show(tag=tag, run=name)

    def steps() -> int:
        return len((page.texts("#view .log[role=region]") or [""])[0].splitlines())

    page.browser.until(lambda: steps() > 30 and points(page) > 2, "the log is longer than its place")
    page.run(
        "window.node = document.querySelector('#view .log[role=region]'); window.text = window.node.firstChild;"
        "getSelection().setBaseAndExtent(window.text, 0, window.text, 6)"
    )
    seen, drawn = steps(), points(page)
    page.browser.until(lambda: steps() > seen and points(page) > drawn, "both grow")
    at_end = page.run("const e = window.node; return e.scrollTop + e.clientHeight >= e.scrollHeight - 8")
    page.run("window.node.scrollTop = 40")
    seen = steps()
    page.browser.until(lambda: steps() > seen, "it grows again")  # the place is asked for after that
    stays = page.run("return window.node.scrollTop === 40")
    same = page.run("return window.node.isConnected && window.node.firstChild === window.text")
    selected = page.run("return String(getSelection())")
    lab.post("experiment/stop", experiment_id=name, reason="seen enough")

    page.until("Stopped: seen enough", "#view .headline")
    assert at_end, "a reader at the end stays there"
    assert stays, "a reader elsewhere stays, too"
    assert same, "the log is not made anew while somebody reads it"
    assert selected == "step 1"
    page.until("training", "#view .phases")
    page.browser.until(lambda: "Last value" in figures(page), "no report is awaited")
    assert page.texts("#view .error:not([hidden] *)") == [], "a stop is no error"
    assert page.asked(IN_SIGHT, 0), "its own curve is within the axis"
    assert page.said() == []


def test_the_curve_has_a_line_of_its_own_one_of_its_parent_and_one_of_the_best(
    page: Page, lab: RunningLab, tag: str
) -> None:
    names: list[str] = []
    for value in (3.0, 2.0, 2.5):
        more = {"parent_id": names[0]} if names else {}
        names.append(lab.submit(tag, config_delta={"VALUE": value}, hypothesis=f"value {value}", **more))
        lab.until_status(names[-1], "keep", "discard")
    parent, best, name = names

    page.show(tag=tag, run=name)

    legend = [f"{parent}, its parent", f"{best}, the best", name]
    page.browser.until(lambda: page.texts("#view .plot canvas"), "the plot")
    shown = "return document.querySelector('#view .plot').getAttribute('aria-label')"
    page.settles(lambda: page.run(shown), f"reports of {', '.join(legend)}")
    assert page.said() == []


def test_a_search_in_the_log_counts_and_steps_through_its_hits(page: Page, lab: RunningLab, tag: str) -> None:
    counts = "for n in range(40): print('line', n, 'odd' if n % 2 else 'even')\n"
    script = f"{counts}import prepare\nprint('val_bpb: 1.0')\n"
    name = lab.submit(tag, commit_sha=lab.commit({"train.py": script}))
    lab.until_status(name, "keep")
    page.show(tag=tag, run=name)
    page.until("line 39", "#view .log")

    page.browser.write("input[aria-label='find in the log']", "EVEN" + ENTER)

    page.until("2 of 20 hits")
    page.settles(lambda: page.run("return CSS.highlights.get('hits').size"), 20)
    page.settles(lambda: page.run("return [...CSS.highlights.get('hit')].map(String)"), ["even"])
    page.browser.write("input[aria-label='find in the log']", " nowhere")
    page.until("not found")
    assert page.said() == []


def test_an_operator_runs_a_run_again_and_sees_its_value(page: Page, lab: RunningLab, tag: str) -> None:
    name = lab.submit(tag, config_delta={"VALUE": 2.0})
    lab.until_status(name, "keep")
    page.sign_in()
    page.show(tag=tag, run=name)

    page.click("Retest")
    question = page.confirm("Run again")

    assert "another seed" in question
    page.until(f"{name}.2", "#view .again")
    page.until("measured", "#view .again")
    page.until("2.000000", "#view .again")
    page.click(f"{name}.2", "#view .again a")
    page.until(f"A further run of {name}", "#view .headline")
    page.until_gone("#view .acts button")  # a retest is not repeated
    assert page.said() == []


def test_an_operator_retracts_a_result_and_has_to_say_why(page: Page, lab: RunningLab, tag: str) -> None:
    (name,) = measured(lab, tag, 2.0)
    page.sign_in()
    page.show(tag=tag, run=name)
    page.click("Retract")
    page.until("cannot be undone", "#asking")

    page.click("Retract", "#asking button")
    page.settles(lambda: len(page.texts("#asking[open] input:invalid")), 1)
    assert lab.status(name) == "keep"
    page.browser.write("#asking input", "leaked data")
    page.click("Retract", "#asking button")

    page.until("Taken back: leaked data", "#view .headline")
    assert lab.status(name) == "retracted"


def test_the_keyboard_reaches_an_action_and_escape_leaves_it_until_the_run_is_stopped(
    page: Page, lab: RunningLab, tag: str
) -> None:
    name = registered(lab, tag)
    page.sign_in()
    page.show(tag=tag, run=name)
    page.settles(lambda: page.texts("#view .acts button"), ["Stop"])

    focused = (
        "document.querySelector('#view .acts button')?.focus();return document.activeElement.textContent"
    )
    page.settles(lambda: page.run(focused), "Stop")
    page.browser.press(ENTER)
    page.browser.until(lambda: page.texts("#asking[open]"), "the question")
    assert page.run("return document.querySelector('#asking').contains(document.activeElement)")
    page.browser.press("\ue00c")

    page.until_gone("#asking[open]")
    assert page.run("return document.activeElement.textContent") == "Stop"
    assert lab.status(name) == "registered"
    page.click("Stop")
    assert "does not count" in page.confirm("Stop")
    page.settles(lambda: figures(page).get("Verdict"), "stopped")
    assert lab.status(name) == "stopped"
    page.until_gone("#view .acts button")


def test_a_visitor_sees_no_control_and_the_lab_refuses_one(page: Page, lab: RunningLab, tag: str) -> None:
    (name,) = measured(lab, tag, 2.0)
    page.show(tag=tag, run=name)
    page.until("first: nothing".capitalize(), "#view .headline")

    refused = page.run(
        "const [experiment_id, reason, headers] = [arguments[0], 'x', { 'content-type': 'application/json' }];"
        "const body = JSON.stringify({ experiment_id, reason });"
        "return Promise.all(['stop', 'retest', 'retract'].map((verb) =>"
        " fetch(`/api/experiment/${verb}`, { method: 'POST', headers, body }).then(({ status }) => status)))",
        name,
    )

    assert page.texts("#view .acts button, #view .action") == []
    assert refused == [403, 403, 403]


def test_claims_and_certificates_are_facts_of_their_runs(page: Page, lab: RunningLab, tag: str) -> None:
    reference, better = (lab.submit(tag, config_delta={"VALUE": value}) for value in (3.0, 2.0))
    for name in (reference, better):
        lab.until_status(name, "keep")
    (claim,) = measured(lab, tag, 4.0, hypothesis="wider")
    lab.post("trust/certify", experiment_id=better, against=reference, alpha=0.2)

    page.show(tag=tag, run=claim)
    page.until("only its agent has measured it", "#view .facts")
    page.settles(lambda: figures(page).get("Gain"), "—")
    page.show(tag=tag, run=better)

    page.until(f"certified, 3 pairs: a gain over {reference} at alpha 0.2", "#view .facts")
    assert page.said() == []


def test_a_run_of_a_swarm_shows_its_constants_and_the_difference_to_its_baseline(
    page: Page, lab: RunningLab
) -> None:
    worker = "pageswarm"
    lab.post(
        "dimension/define", tag=worker, dimensions=[{"name": "LR", "dtype": "float", "min": 0.1, "max": 0.2}]
    )
    joining = {"worker_id": worker, "gpu_type": "H100", "baseline_bpb": 1.0, "tag": worker}
    lab.http.post("/register", json=joining)
    handed_out = lab.http.get(f"/next_config/{worker}").json()
    result = {"worker_id": worker, "exp_id": handed_out["run_id"], "config": {}, "config_delta": {}}
    lab.http.post("/result", json=result | {"val_bpb": 0.75, "delta_bpb": -0.25, "duration_seconds": 2.5})

    page.show(tag=worker, run=handed_out["run_id"])

    page.until("0.750000, its worker's baseline 1.000000", "#view .facts")
    page.settles(lambda: figures(page).get("delta_bpb"), "\u22120.250000")
    for name, value in handed_out["config_delta"].items():
        page.until(f"{name}\n{value}", "#view .facts")
    page.until("Its worker has the code. It sets constants.", "#view .held")
    assert page.said() == []


def test_a_run_that_reports_nothing_shows_the_lines_that_it_lacks(
    page: Page, lab: RunningLab, tag: str
) -> None:
    lab.post("search/set-policy", tag=tag, policy={"stopping.rule": "stochastic"})
    mute = lab.commit({"train.py": 'import prepare\nprint("val_bpb: 1.0")\n'})
    name = lab.submit(tag, commit_sha=mute)
    lab.until_status(name, "keep")

    page.show(tag=tag, run=name)

    page.until("from nightjar_report import report", "#view .no-signal")
    page.until("commit", "#view .facts")
    page.browser.until(lambda: "attempt" not in facts(page), "an attempt is named only above the first")
    page.browser.until(lambda: "attempt" not in page.texts("#view .phases")[0], "not in its times either")


def test_a_run_that_is_not_there_is_named_with_a_way_back(page: Page, lab: RunningLab, tag: str) -> None:
    page.show(tag=tag, run=f"{tag}-99")

    page.until(f"there is no experiment '{tag}-99'", "#unknown h2")
    page.click("All runs of this tag")

    page.settles(lambda: page.address().get("view"), "runs")
