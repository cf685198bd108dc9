"""`python -P -m triggers.cli`: the commands, each imported only when it is used."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

from state.errors import NightjarError
from state.program import VERSION
from triggers.cli.output import EXIT_CODES, Suggesting, explain

COMMANDS = {
    "demo": "a research night in minutes: two agents, table and plot",
    "up": "start the lab: Redis, web, events, clock, this machine's workers",
    "open": "sign a browser in to the lab's page",
    "setup": "open a tag: its metric, its direction, its budget",
    "agent": "start coding agents on a tag, and keep them at work",
    "try": "have the change in your clone trained, and keep it or take it back",
    "wait": "wait for an experiment; the exit code is its outcome",
    "status": "show processes, GPUs, queue and the best of each tag",
    "top": "watch the lab live: bests, runs, GPUs, the last events",
    "events": "follow the lab's events",
    "ls": "list a tag's experiments, the newest first",
    "best": "show a tag's best experiment",
    "show": "show an experiment: what was tried, what came of it, its log's end",
    "logs": "print an experiment's log, and follow it",
    "diff": "print an experiment's patch, or what lies between two",
    "report": "print what a night brought, as Markdown",
    "export": "write a tag's runs for Optuna, MLflow, W&B, Trackio or CSV",
    "take": "make a git branch of an experiment's code",
    "retest": "run an experiment's code once more, on another seed",
    "certify": "test a gain in pairs of runs, and write the evidence",
    "distil": "find the smallest patch with the score of a tag's best",
    "transfer": "try whether a keep's gain holds when it trains for longer",
    "stop": "stop an experiment",
    "pause": "start no more runs of a tag",
    "unpause": "start runs of a paused tag again",
    "replay": "judge a log of results or a tag again under another keep rule",
    "worker": "train for a lab on this machine's GPUs",
    "join": "lend this machine to a swarm: run its configs of your train.py",
    "dims": "what a swarm may vary: scan a train.py, define, ls",
    "program": "print what a tag's workers and agents are told of its results",
    "journal": "print what a swarm believes, checkpoint by checkpoint",
    "simulate": "try a swarm's server with many simulated workers, without a GPU",
    "doctor": "check this machine and audit the lab",
    "call": "call any function of the running lab",
    "token": "manage tokens: issue, enroll, list, rotate, revoke, whoami",
    "webhook": "send events to URLs: add, list, test, remove",
    "backup": "write the whole lab to one file, while it runs",
    "restore": "make a lab from a backup",
    "config": "show every setting, secrets redacted",
    "redis": "send a command to the lab's Redis",
    "test": "run the tests and static checks",
}

MODULES = {
    **dict.fromkeys(("setup", "pause", "unpause", "stop", "retest"), "steering"),
    **dict.fromkeys(("ls", "show", "logs", "diff", "best"), "looking"),
    **dict.fromkeys(("certify", "distil", "transfer"), "trust"),
    **dict.fromkeys(("report", "journal", "program", "status"), "texts"),
    **dict.fromkeys(("backup", "restore"), "backups"),
    **dict.fromkeys(("doctor", "redis"), "doctor"),
    **dict.fromkeys(("worker", "join", "agent"), "worker"),
    **dict.fromkeys(("events", "webhook"), "events"),
    **dict.fromkeys(("token", "open"), "token"),
    "take": "repository",
    "try": "one_idea",
}
"""Modules that hold `<command>_command`. Any other command is `command` in the module of its name."""


class Lazy(Suggesting):
    """Commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.disable()
        module = importlib.import_module(f"triggers.cli.{MODULES.get(cmd_name, cmd_name)}")
        gc.freeze()  # what was imported stays: looking at it again, at the exit above all, takes a quarter of a call
        gc.enable()
        command: click.Command = getattr(module, f"{cmd_name}_command" if cmd_name in MODULES else "command")
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """In one line without a heading, so that the help fits a screen."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_dl([("-h, --help, --version", "show this message, or the version")])
        self.format_commands(ctx, formatter)

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
        importlib.import_module(f"triggers.cli.{MODULES.get(command, command)}")
    importlib.import_module("workers.supervisor")
    importlib.import_module("workers.join")
    importlib.import_module("workers.gpu").preload()


def main() -> int:
    color = False if os.environ.get("NO_COLOR") else None
    try:
        return int(nightjar.main(prog_name="nightjar", standalone_mode=False, color=color) or 0)
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
