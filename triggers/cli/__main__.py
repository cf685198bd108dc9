"""`python -P -m triggers.cli`: the commands, each imported only when it is used."""

from __future__ import annotations

import gc
import importlib
import sys

import click

from state.errors import NightjarError
from state.version import VERSION
from triggers.cli.output import EXIT_CODES, explain
from triggers.cli.suggesting import Suggesting

COMMANDS = {
    "demo": "a research night in minutes: two agents really train; shows the table and the plot",
    "up": "start the lab: Redis, web, events, clock and this machine's workers",
    "worker": "train for a lab on this machine's GPUs",
    "join": "lend this machine to a swarm: pull configs for your train.py, run them, report",
    "simulate": "try a swarm's server with many simulated workers, without a GPU",
    "agent": "start coding agents on a tag, and keep them at work",
    "open": "sign a browser in to the lab's page",
    "status": "show processes, GPUs, queue and the best of each tag",
    "events": "follow the lab's events",
    "ls": "list a tag's experiments, the newest first",
    "best": "show a tag's best experiment",
    "show": "show one experiment: what was tried, what came of it, the end of its log",
    "logs": "print an experiment's log, and follow it",
    "diff": "print an experiment's patch, or what lies between two",
    "report": "print what a night brought, as Markdown",
    "program": "print what a tag's workers and agents are told of its results; its versions",
    "journal": "print what a swarm has come to believe, checkpoint by checkpoint",
    "take": "make a git branch of an experiment's code",
    "try": "have the change in your clone trained, and keep it or take it back",
    "wait": "wait for an experiment; the exit code is its outcome",
    "stop": "stop an experiment",
    "setup": "open a tag: its metric, its direction, its budget",
    "pause": "start no more runs of a tag",
    "unpause": "start runs of a paused tag again",
    "retest": "run an experiment's code once more, on another seed",
    "call": "call any function of the running lab",
    "webhook": "send events to URLs: add, list, test, remove",
    "token": "manage tokens: issue, enroll, list, rotate, revoke, whoami",
    "dims": "what a swarm may vary: scan a train.py, define, ls",
    "replay": "judge a log of results or a tag again under another keep rule",
    "doctor": "check this machine and audit the lab",
    "backup": "write the whole lab to one file, while it runs",
    "restore": "make a lab from a backup",
    "config": "show every setting, secrets redacted",
    "redis": "send a command to the lab's Redis",
    "test": "run the tests and static checks",
}


class Lazy(Suggesting):
    """Commands by module name: `triggers/cli/<command>.py` holds `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.disable()
        module = importlib.import_module(f"triggers.cli.{cmd_name}")
        gc.freeze()  # what was imported stays: looking at it again, at the exit above all, takes a quarter of a call
        gc.enable()
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=Lazy,
    epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def nightjar() -> None:
    """Nightjar: autonomous machine-learning research that runs overnight."""


def import_all() -> None:
    """Import the modules of all commands and processes, so that Python writes their bytecode."""
    for command in COMMANDS:
        importlib.import_module(f"triggers.cli.{command}")
    importlib.import_module("workers.supervisor")
    importlib.import_module("workers.join")
    importlib.import_module("workers.horse").preload()


def main() -> int:
    try:
        return int(nightjar.main(prog_name="nightjar", standalone_mode=False) or 0)
    except click.exceptions.Abort:
        return 130
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except NightjarError as problem:
        return explain(problem)


if __name__ == "__main__":
    sys.exit(main())
