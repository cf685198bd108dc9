"""A clock process whose table is three functions, one for each policy of missed firings."""

from __future__ import annotations

import sys
from typing import Any

from functions.contract import Every, Function, Request, Response, function
from functions.process.running import run
from triggers.clock import serve

PERIOD_S = 1.0
GRACE_S = 0.1
AT_MOST = 3


class Ask(Request):
    pass


class Told(Response):
    pass


async def answer(request: Ask) -> Told:
    """Answer."""
    return Told()


TRIGGERS = {
    "probe::skip": Every(PERIOD_S, missed="skip", overlap="allow", grace_s=GRACE_S),
    "probe::latest": Every(PERIOD_S, missed="latest", overlap="allow"),
    "probe::all": Every(PERIOD_S, missed="all", at_most=AT_MOST, overlap="allow", grace_s=1e6),
}
FUNCTIONS: dict[str, Function[Any, Any]] = {
    name: function(name, trigger, role="operator")(answer) for name, trigger in TRIGGERS.items()
}


if __name__ == "__main__":
    sys.exit(run("clock", lambda settings: serve(settings, FUNCTIONS)))
