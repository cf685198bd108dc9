"""Commands that open tags and steer their runs: `nightjar setup`, `pause`, `unpause`, `stop` and `retest`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from state.errors import Conflict, Invalid
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import FiniteNumber, NameType, json_option, tag_argument, with_lab
from triggers.cli.output import ERROR, OK, counted, print_answer, print_json, show
from triggers.cli.runs import the_tag

if TYPE_CHECKING:
    from state.records import Direction


def _policy(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """Parse `budgets.overrun=1.5` into a name and a value, as JSON if possible."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as keep_rule=strict")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@click.command()
@with_lab
@tag_argument
@click.option("--metric", help="its name, as train.py prints it  [default: val_bpb]")
@click.option("direction", "--maximize", flag_value="maximize", help="a higher value is better")
@click.option(
    "direction",
    "--minimize",
    flag_value="minimize",
    help="a lower value is better  [default: by a word of the metric's name]",
)
@click.option("--budget", type=FiniteNumber(min=0), help="seconds of a run  [default: 300]")
@click.option(
    "--policy",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_policy,
    help="another value of the policy, such as keep_rule=strict (repeatable)",
)
@click.option("--base", metavar="COMMIT", help="the base commit  [default: the workers' HEAD]")
@click.option("--evaluator-command", help="measures the score after each training")
@click.option("--hidden-split", is_flag=True, help="it measures a second number that agents never see, too")
@click.option("--test-split", is_flag=True, help="and a third one, in certificates alone")
@json_option
def setup_command(
    http: LabHttp,
    tag: str | None,
    metric: str | None,
    direction: Direction | None,
    budget: float | None,
    policy: dict[str, Any],
    base: str | None,
    evaluator_command: str | None,
    hidden_split: bool,
    test_split: bool,
    as_json: bool,
) -> int:
    """Open TAG, a line of research, and show what its runs are measured by.

    A TAG that exists already stays as it is: what it has otherwise is said, with exit code 1.
    `nightjar call experiment::setup` has further fields.
    """
    if tag is None:
        raise click.UsageError("name the TAG to open, such as mar11")
    NameType().convert(tag, None, click.get_current_context())
    if direction is not None and metric is None:
        raise click.UsageError(f"--{direction} goes with --metric NAME")
    measured = {"name": metric, "direction": direction}
    values = policy | ({} if budget is None else {"budgets.base_s": budget})
    fields = {
        "metric": {name: given for name, given in measured.items() if given is not None},
        "policy": values,
        "base_commit": base,
        "evaluator_command": evaluator_command,
        "hidden_split": hidden_split,
        "test_split": test_split,
    }
    body = {"tag": tag} | {name: given for name, given in fields.items() if given}
    if metric is not None and direction is None:
        _check_direction(metric)
    try:
        answer = http.ask("POST", "/api/experiment/setup", body)
    except Conflict as problem:
        found = problem.fields.get("problem")
        if not isinstance(found, dict) or "existing" not in found:
            raise
        answer = {"tag": found["existing"], "ignored": found["ignored"], "exists": True}
    answer["policy"] = http.ask("POST", "/api/search/policy", {"tag": tag})["policy"]
    if as_json:
        print_json(answer)
    else:
        _show(answer)
    return ERROR if answer.get("ignored") else OK


def _check_direction(metric: str) -> None:
    """Check that the metric's name says which way is better. Raises Invalid: it does not."""
    from functions.formats.metrics_block import direction_of  # imported late: few need it

    try:
        direction_of(metric)
    except Invalid as problem:
        raise Invalid(problem.detail, hint="say --maximize or --minimize") from problem


def _show(answer: dict[str, Any]) -> None:
    tag, ignored = answer["tag"], answer.get("ignored", {})
    metric, better = tag["metric"], {"minimize": "lower", "maximize": "higher"}
    count = counted(tag["total_experiments"], "experiment")
    show(f"{tag['name']}: {f'exists already, with {count}' if 'exists' in answer else 'opened'}")
    show(f"metric    {metric['name']}: a {better[metric['direction']]} value is better")
    show(f"budget    {answer['policy']['budgets']['base_s']:g} s for each run")
    show(f"base      {tag['base_commit'] or 'not known yet'}, branch {tag['branch']}")
    for guard in answer.get("guards", ()):
        show(f"guard     {guard}")
    for name, pair in ignored.items():
        show(f"ignored   {name} {pair['sent']!r}: it has {pair['has']!r}")
    if answer.get("hint"):
        show(f"missing   {answer['hint']}")
    if any(name.startswith("policy.") for name in ignored):
        click.echo(f"-> {PROGRAM} call search::set_policy --tag {tag['name']} changes its policy")
    if any(not name.startswith("policy.") for name in ignored):
        click.echo(f"-> go on with it, or open another tag: {PROGRAM} setup NAME")
    if not ignored:
        click.echo(f"-> {PROGRAM} agent --tag {tag['name']} -- COMMAND starts an agent on it")


@click.command()
@with_lab
@tag_argument
@click.option("--reason", help="why, for the tag's agents")
@click.option("--stop-running", is_flag=True, help="stop its runs in progress too; else they go on")
@json_option
def pause_command(
    http: LabHttp, tag: str | None, reason: str | None, stop_running: bool, as_json: bool
) -> None:
    """Start no more runs of TAG (default: the lab's only tag): what waits keeps its place."""
    name = the_tag(http, tag)
    body = {"tag": name, "stop_running": stop_running, "reason": reason}
    found = http.ask("POST", "/api/tag/pause", body)
    if as_json:
        print_json(found)
        return
    since = "" if found["changed"] else f" since {found['paused_at']}"
    why = f" ({found['reason']})" if found["reason"] else ""
    show(f"{name}: paused{since}{why}; waiting: {counted(found['waiting'], 'experiment')}")
    if found["stopping"]:
        show(f"its workers end {', '.join(found['stopping'])}")
    click.echo(f"-> {PROGRAM} unpause {name}")


@click.command()
@with_lab
@tag_argument
@json_option
def unpause_command(http: LabHttp, tag: str | None, as_json: bool) -> None:
    """Start runs of TAG again (default: the lab's only tag)."""
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/tag/unpause", {"tag": name})
    what = "goes on" if found["changed"] else "was not paused"
    print_answer(found, as_json, f"{name}: {what}; waiting: {counted(found['waiting'], 'experiment')}")


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--reason", help="why, for whoever reads it later")
@json_option
def stop_command(http: LabHttp, experiment: str, reason: str | None, as_json: bool) -> None:
    """Stop EXPERIMENT: at once where no worker has it, else its worker ends the run."""
    body = {"experiment_id": experiment} | ({"reason": reason} if reason is not None else {})
    found = http.ask("POST", "/api/experiment/stop", body)
    how = f"its worker ends the run; {PROGRAM} wait {experiment}" if found["stopping"] else "stopped"
    print_answer(found, as_json, f"{experiment}: {how}")


@click.command()
@with_lab
@click.argument("experiment")
@json_option
def retest_command(http: LabHttp, experiment: str, as_json: bool) -> None:
    """Run the code of EXPERIMENT once more on another seed: evidence for it, not a new experiment."""
    found = http.ask("POST", "/api/experiment/retest", {"experiment_id": experiment})
    again = found["retest_id"]
    print_answer(found, as_json, f"{again}: {found['status']}, seed {found['seed']}; {PROGRAM} wait {again}")
