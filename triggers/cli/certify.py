"""`nightjar certify` runs an experiment and a reference in pairs until a test decides, and writes the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from functions.trust.rules.sequential import e_values, paired_gain
from state.program import PROGRAM
from triggers.certificates import folder
from triggers.cli.following import followed
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import Number, with_lab
from triggers.cli.output import DISCARD, OK, note
from triggers.cli.runs import path_of


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--against", metavar="REF", default=None, help="the reference [default: the tag's baseline]")
@click.option("--min-gain", type=Number(min=0), default=0.0, help="the gain has to exceed this [default: 0]")
@click.option(
    "--alpha", type=Number(min=1e-6, max=0.2), default=0.01, help="largest false rate [default: 0.01]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="folder of the evidence [default: certificate-EXPERIMENT]",
)
def command(
    http: LabHttp, experiment: str, against: str | None, min_gain: float, alpha: float, output: Path | None
) -> int:
    """Run EXPERIMENT and a reference in pairs on fresh seeds until a sequential test decides; write the evidence.

    After Ctrl-C the lab goes on, and the same command follows it. Exit codes: 0 certified, 3 refused, inconclusive.
    """
    target = output or Path(f"certificate-{experiment}")
    folder.check_new(target)
    asked = {"experiment_id": experiment, "against": against, "min_gain": min_gain, "alpha": alpha}
    one = http.ask("POST", "/api/trust/certify", asked)["certificate"]
    try:
        one = _followed(http, one)
    except KeyboardInterrupt:
        note(f"the lab goes on; {PROGRAM} certify {experiment}, with the same options, follows it")
        return 130
    said = folder.write(target, http.ask, experiment)
    click.echo(said if one["state"] == "certified" else f"{one['state']}: {one['reason']}")
    click.echo(f"{target}: python3 -I {target}/verify.py checks it")
    return OK if one["state"] == "certified" else DISCARD


def _followed(http: LabHttp, one: dict[str, Any]) -> dict[str, Any]:
    """The certificate once it is decided; prints each pair as it ends."""
    told, path = 0, path_of(one["experiment_id"])

    def tell(one: dict[str, Any]) -> None:
        nonlocal told
        for line in lines(one)[told:]:
            click.echo(line)
            told += 1

    return followed(one, lambda: http.ask("GET", path)["certificate"], tell)


def lines(one: dict[str, Any]) -> list[str]:
    """A line for the conditions, and one for each pair that is over."""
    sign = 1 if one["direction"] == "minimize" else -1
    found = [
        f"{one['experiment_id']} against {one['against']}, at most {one['most_pairs']} pairs on {one['gpu_class']};"
        f" an e-value of {1 / one['alpha']:g} certifies it"
    ]
    gains: list[float] = []
    for nth, pair in enumerate(one["pairs"], 1):
        if pair["measured"] is not None:
            candidate, reference = pair["measured"]
            gains.append(paired_gain(sign * reference, sign * candidate, one["min_gain"]))
            found.append(
                f"pair {nth}: {candidate:.6g} ({pair['candidate']}) beside {reference:.6g} ({pair['reference']}),"
                f" {gains[-1]:+.6g} beyond the margin; e-value {e_values(gains)[-1]:.4g}"
            )
        elif pair["broken"] is not None:
            found.append(f"pair {nth}: run again, {pair['broken']}")
    return found
