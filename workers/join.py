"""The process of a swarm's worker. `python -P -m workers.join`."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import get_args

import click

from functions.kernel.process.ending import adopt_orphans
from functions.kernel.process.logs import start_logging
from functions.kernel.process.remote import Joined, WorkerTerms, alone_in, remembered
from functions.kernel.process.running import exit_with
from functions.kernel.process.worker_options import Isolation
from state.errors import Invalid, NightjarError
from state.program import PROGRAM
from state.settings import Settings
from workers.swarm.joining import join
from workers.swarm.working import JoinOptions


def say(line: str) -> None:
    """Print a line for the worker's owner."""
    click.echo(line)
    sys.stdout.flush()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
# triggers.cli.join reads the next four before this process starts; they are here for --help
@click.option("--url", expose_value=False, help="the swarm's URL")
@click.option(
    "--enroll-token",
    expose_value=False,
    help="the token to enter, from the organiser [NIGHTJAR_ENROLL_TOKEN]",
)
@click.option("--worker-id", metavar="NAME", expose_value=False, help="the worker's name, which no other has")
@click.option("--data", metavar="PATH", expose_value=False, help="the worker's own directory [NIGHTJAR_DATA]")
@click.option("--train-py", type=click.Path(path_type=Path), default=None, help="the script to run")
@click.option("--gpu-type", default=None, help="GPU name that others see [default: its model]")
@click.option("--contact", default=None, help="address at which the organiser reaches you")
@click.option("--tag", default=None, help="the swarm, if the server has several")
@click.option("--max-runs", type=click.IntRange(1), default=None, help="leave after so many runs")
@click.option(
    "--baseline-runs",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="runs of the unchanged script; the baseline is their mean",
)
@click.option("--skip-baseline", is_flag=True, help="do not measure; needs --baseline-bpb")
@click.option("--baseline-bpb", type=float, default=None, help="val_bpb of the unchanged script")
@click.option("--gpu", default=None, help="the index of a GPU, or none [default: the first, else the CPU]")
@click.option("--python", default=None, help="interpreter that trains [default: the project's own]")
@click.option(
    "--isolation",
    type=click.Choice(get_args(Isolation)),
    default=None,
    help="how far runs are kept from this machine [default: the strongest that works here]",
)
@click.option("--network", type=click.Choice(["on", "off"]), default=None, help="network for isolated runs")
@click.option(
    "--data-dir",
    "data_dirs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="folder that isolated runs may read, too",
)
@click.option(
    "--use-spec-pipeline",
    is_flag=True,
    help="preload drafts of the swarm's next program, and follow one as soon as the swarm trusts it",
)
@click.option("--pass-env", multiple=True, metavar="NAME", help="environment variable for runs")
def main(
    train_py: Path | None,
    gpu_type: str | None,
    contact: str | None,
    tag: str | None,
    max_runs: int | None,
    baseline_runs: int,
    skip_baseline: bool,
    baseline_bpb: float | None,
    gpu: str | None,
    python: str | None,
    isolation: Isolation | None,
    network: str | None,
    data_dirs: tuple[Path, ...],
    pass_env: tuple[str, ...],
    use_spec_pipeline: bool,
) -> None:
    """Join a swarm with your train.py: pull configs, run them on this machine, report.

    The first time: --url URL --train-py PATH. Options are remembered: afterwards `join` alone goes on, and options
    that you give again replace the remembered ones.

    Your train.py is never changed: each run gets a copy with other constants. Ctrl-C finishes the run and leaves;
    a second one gives the run back.
    """
    if skip_baseline != (baseline_bpb is not None):
        raise click.UsageError("--skip-baseline and --baseline-bpb X go together")
    if baseline_bpb is not None and not math.isfinite(baseline_bpb):
        raise click.BadParameter(f"{baseline_bpb} is no finite number", param_hint="--baseline-bpb")
    said = {
        "train_py": train_py.expanduser().absolute() if train_py else None,
        "gpu_type": gpu_type,
        "contact": contact,
        "tag": tag,
        "gpu": gpu,
        "python": python,
        "isolation": isolation,
        "network": None if network is None else network == "on",
        "data_dirs": tuple(folder.absolute() for folder in data_dirs) or None,
        "pass_env": pass_env or None,
    }
    settings = Settings()
    start_logging(settings, "join")
    enroll_token = settings.enroll_token.get_secret_value() if settings.enroll_token else None
    options = JoinOptions(enroll_token, max_runs, baseline_runs, baseline_bpb, use_spec_pipeline)
    try:
        with alone_in(settings.data_dir):
            joined = remembered(settings.data_dir, Joined)
            if joined is None:
                raise Invalid("this worker has joined no swarm yet", hint="join with --url URL")
            terms = WorkerTerms.model_validate(
                joined.terms.model_dump() | {name: value for name, value in said.items() if value is not None}
            )
            joined = joined.model_copy(update={"terms": terms})
            joined.save(settings.data_dir)
            adopt_orphans()
            asyncio.run(join(joined, options, settings, say))
    except NightjarError as problem:
        sys.exit(exit_with(problem))


if __name__ == "__main__":
    main(prog_name=f"{PROGRAM} join")
