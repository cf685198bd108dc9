"""The command of a tag's evaluator, as an operator writes it: `python SCRIPT [ARGUMENT...]`."""

from __future__ import annotations

import re
import shlex

from state.errors import Invalid

_SCRIPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*\.py")


def words_of(command: str) -> list[str]:
    """The words of the command.

    Raises:
        Invalid: it does not run a Python script of the repository.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"the evaluator's command {command!r} cannot be read: {error}", hint=_HINT) from error
    if len(words) < 2 or words[0] != "python" or not _SCRIPT.fullmatch(words[1]):
        raise Invalid(
            f"the evaluator's command {command!r} is not `python SCRIPT.py [ARGUMENT...]`", hint=_HINT
        )
    return words


_HINT = (
    "the worker runs the script with the project's Python, from the base commit's files: name it by its path in the"
    " repository, such as `python prepare.py`"
)
