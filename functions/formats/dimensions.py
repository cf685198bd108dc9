"""dimensions.toml: what a swarm may vary, one table `[[dimension]]` for each; read, and proposed for a train.py.

    [[dimension]]
    name = "LEARNING_RATE"
    dtype = "float_log"
    min = 0.0001
    max = 0.1

The file may have `[[hypothesis]]` tables, too: claims about these dimensions.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from functions.beliefs.rules.declaring import DeclaredHypothesis, declared_hypotheses
from functions.formats.constants import read_constants
from functions.formats.hyperparameters import choices_in, computed_at_top, found_elsewhere
from functions.swarm.rules.dimensions import DeclaredDimension, checked, complete
from functions.swarm.rules.scanning import Scanned, scanned, untouched
from state.errors import Invalid

LONGEST_FILE: Final = 256 * 1024
"""Characters."""
MOST_NAMED: Final = 20
EXAMPLE: Final = """\
[[dimension]]
name = "LEARNING_RATE"
dtype = "float_log"
min = 0.0001
max = 0.1"""

_MEASURED = ("importance", "interaction", "n_samples", "best_known_value")
"""What the lab measures of a dimension."""


@dataclass(frozen=True)
class DimensionsFile:
    dimensions: list[DeclaredDimension]
    hypotheses: list[DeclaredHypothesis]
    """Not yet checked against the dimensions: its tag may have others, too."""


def read_dimensions(text: str) -> DimensionsFile:
    """What a dimensions.toml declares, in its order. Raises Invalid, naming the line or the dimension."""
    tables = _parsed(text)
    if unknown := tables.keys() - {"dimension", "hypothesis"}:
        name = min(unknown)
        hint = f"write [[dimension]] for each, not [{name}]" if "dim" in name.lower() else "leave it out"
        raise Invalid(f"a dimensions.toml has no {name[:64]!r}", hint=f"{hint}; such as:\n{EXAMPLE}")
    given, hypotheses = (_tables(tables, name) for name in ("dimension", "hypothesis"))
    if not given:
        raise Invalid(
            "there is no [[dimension]] in it", hint=f"add one for each constant, such as:\n{EXAMPLE}"
        )
    lines = [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text)]
    places = [f"line {line}" for line in lines] if len(lines) == len(given) else [""] * len(given)
    declared = [_declared(nth, *of) for nth, of in enumerate(zip(given, places, strict=True), 1)]
    complete([found for _, found in declared])
    return DimensionsFile([one for one, _ in declared], declared_hypotheses(hypotheses))


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > LONGEST_FILE:
        raise Invalid(
            f"the file has {len(text):,} characters", hint=f"a dimensions.toml has at most {LONGEST_FILE:,}"
        )
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as problem:
        raise Invalid(
            f"this is no TOML: {problem}", hint=f"texts need quotes; a dimension looks like:\n{EXAMPLE}"
        ) from problem
    except (ValueError, RecursionError) as problem:  # a number of too many digits, too many brackets
        raise Invalid(
            f"this TOML cannot be read: {type(problem).__name__}", hint=f"a dimension looks like:\n{EXAMPLE}"
        ) from problem


def _tables(tables: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = tables.get(name, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise Invalid(
            f"{name} is no list of tables", hint=f"write [[{name}]] in front of each, with two brackets"
        )
    return found


_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*(?:dimension|\"dimension\"|'dimension')[ \t]*\]\]", re.MULTILINE)


def _declared(nth: int, table: dict[str, Any], place: str) -> tuple[DeclaredDimension, Any]:
    name = table.get("name")
    who = f"dimension {name[:64]!r}" if isinstance(name, str) else f"dimension {nth}"
    at = f"{place}, " if place else ""
    try:
        found = DeclaredDimension.model_validate(table)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        detail, hint = _explained(first)
        raise Invalid(f"{at}{who}: {detail}", hint=hint) from problem
    try:
        return found, checked(found)
    except Invalid as problem:
        raise Invalid(f"{at}{problem.detail}", hint=problem.hint) from problem


def _explained(problem: ErrorDetails) -> tuple[str, str]:
    """Fault of a field, with its remedy."""
    field = str(problem["loc"][0])[:64]
    if problem["type"] == "missing":
        return f"it has no {field}", f"a dimension looks like:\n{EXAMPLE}"
    if problem["type"] == "extra_forbidden":
        if field in _MEASURED:
            return f"{field} is measured, not declared", "leave it out"
        known = ", ".join(DeclaredDimension.model_fields)
        return f"there is no field {field!r}", f"the fields are {known}"
    description = DeclaredDimension.model_fields[field].description or ""
    return f"{field}: {problem['msg']}", f"{field} is {description}"


# -- a file for the constants of a script


def scan(source: str) -> Scanned:
    """What the constants of a train.py suggest. Raises Invalid: it does not parse, or no swarm could vary one."""
    constants = read_constants(source)
    found = scanned(constants, choices_in(source))
    elsewhere = {
        name: untouched(name, None) or reason
        for name, reason in (computed_at_top(source, constants) | found_elsewhere(source)).items()
        if name not in constants
    }
    if not found.found:
        seen = ", ".join([*found.left_out, *elsewhere][:MOST_NAMED])
        raise Invalid(
            "it has no top-level constant that a swarm could vary" + (f"; it has {seen}" if seen else ""),
            hint="assign each hyperparameter once, at the top level, to a number or a text: LEARNING_RATE = 3e-4",
        )
    return Scanned(found.found, {**found.left_out, **elsewhere})


def scanned_file(of: Scanned, title: str) -> str:
    """The dimensions.toml of a scan, with what is to be edited in comments."""
    head = [
        f"# What a swarm may vary of {ascii(title)[1:-1]}: proposed from the values of its constants.",
        "# Edit each range: the search tries all of it, and nothing outside. Delete the dimensions that do not",
        "# matter, such as how often to print.",
    ]
    tables = [_table(declared, value) for declared, value in of.found]
    tail = ["# Left out:", *(f"#   {name}: {reason}" for name, reason in of.left_out.items())]
    return "\n\n".join(["\n".join(head), *tables, *(["\n".join(tail)] if of.left_out else [])]) + "\n"


def _table(declared: DeclaredDimension, value: object) -> str:
    lines = [
        "[[dimension]]",
        f"name = {_literal(declared.name)}  # {_shown(value)} now",
        f"dtype = {_literal(declared.dtype)}",
    ]
    if declared.categories is not None:
        lines.append(f"categories = [{', '.join(map(_literal, declared.categories))}]")
    else:
        lines += [f"min = {_literal(declared.min)}", f"max = {_literal(declared.max)}"]
    return "\n".join(lines)


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


def _literal(value: object) -> str:
    """A value of TOML: its texts are escaped as JSON's, its numbers are spelt as Python's."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
