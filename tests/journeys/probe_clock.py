"""A clock process whose table is one function."""

from __future__ import annotations

import sys

from functions.kernel.contract import Every, Request, Response, function
from functions.kernel.process.running import run
from triggers.clock import serve

NAME = "probe::tick"
PERIOD_S = 1.0


class Ask(Request):
    pass


class Told(Response):
    pass


@function(NAME, Every(PERIOD_S, overlap="allow"), role="operator")
async def answer(request: Ask) -> Told:
    """Answer."""
    return Told()


if __name__ == "__main__":
    sys.exit(run("clock", lambda settings: serve(settings, {NAME: answer})))
