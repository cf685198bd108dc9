"""Proposes the next change of a training script's constants from what was tried before.

Nothing here reads a file, a clock or the network: constants, history and chance come in as arguments, so a proposal
can be repeated in a REPL. A real agent would put a language model in the place of `propose`.
"""

from __future__ import annotations

import ast
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Literal

Value = bool | int | float | str
Config = Mapping[str, Value]
Kind = Literal["scale", "share", "near one", "doubling"]

OPEN = ("registered", "queued", "leased", "running")


# ---- What a constant's name tells --------------------------------------------------------------------------


@dataclass(frozen=True)
class Trait:
    """Prior knowledge about constants whose name has a word with this prefix."""

    words: str
    category: str | None
    """One of the lab's categories; None for constants that change no result, or change it by cheating."""
    kind: Kind = "scale"
    upward: float = 0.5
    """Probability that the first try goes up: small projects usually gain from more capacity and larger steps."""
    weight: float = 1.0


TRAITS = (  # the first that matches counts
    Trait("SEED|EVAL|BUDGET|WALL_CLOCK|VOCAB|DEVICE|REPORT|LOG$|LOG_|EPS|VERBOSE|NUM_WORKERS", None),
    Trait("WARMUP|WARMDOWN|COOLDOWN|FINAL|SCHEDULE", "scheduling", "share"),
    Trait("DROP|SMOOTHING", "regularization", "share"),
    Trait("BETA|MOMENTUM|EMA", "optimizer", "near one", weight=0.5),
    Trait("WEIGHT_DECAY|WD|CLIP", "regularization", weight=0.7),
    Trait("LR|LEARNING_RATE", "optimizer", upward=0.85, weight=2.0),
    Trait("OPTIM", "optimizer"),
    Trait("ACTIVATION|ACT$|NONLIN", "activation"),
    Trait("HEAD|WINDOW|ATT|ROPE", "attention"),
    Trait("EMB", "embedding", upward=0.85, weight=2.0),
    Trait("NORM", "normalization"),
    Trait("INIT", "initialization"),
    Trait("DEPTH|LAYER|BLOCK|WIDTH|DIM|HIDDEN|EXPAN|ASPECT|CONTEXT", "architecture", upward=0.85, weight=2.0),
    Trait("BATCH", "hyperparams", "doubling"),
    Trait("", "other", weight=0.2),
)

USUAL_CHOICES = {
    "activation": ("relu", "gelu", "silu", "tanh"),
    "optimizer": ("adamw", "adam", "sgd"),
}
"""For a script that does not list its own choices in a dict."""


@cache
def trait_of(name: str) -> Trait:
    """The first trait with a word of this name."""
    return next(t for t in TRAITS if re.search(f"(^|_)({t.words})", name.upper()))


# ---- The script's constants --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """A `NAME = literal` line at the top level of the script."""

    name: str
    value: Value
    literal: ast.expr
    choices: tuple[str, ...] = ()
    """Other values of a text."""


def read_constants(source: str) -> dict[str, Constant]:
    """Upper-case names that the script binds once to a number, a boolean or a text on one line."""
    tree = ast.parse(source)
    bound = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    found: dict[str, Constant] = {}
    for line in tree.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=literal):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as literal):
                pass
            case _:
                continue
        value = _value(literal)
        if value is not None and name.isupper() and bound[name] == 1 and literal.lineno == literal.end_lineno:
            choices = _choices(tree, name, value) if isinstance(value, str) else ()
            found[name] = Constant(name, value, literal, choices)
    return found


def set_constants(source: str, values: Config) -> str:
    """The script with these constants set; nothing but their literals changes."""
    constants, lines = read_constants(source), source.encode().splitlines(keepends=True)
    # backwards, so that earlier positions stay valid
    for name in sorted(values, key=lambda n: (constants[n].literal.lineno, constants[n].literal.col_offset))[
        ::-1
    ]:
        literal, value = constants[name].literal, values[name]
        written = json.dumps(value) if isinstance(value, str) else repr(value)  # json: in double quotes
        line = lines[literal.lineno - 1]
        before, after = line[: literal.col_offset], line[literal.end_col_offset :]
        lines[literal.lineno - 1] = before + written.encode() + after
    return b"".join(lines).decode()


def _value(literal: ast.expr) -> Value | None:
    match literal:
        case ast.BinOp(
            left=ast.Constant(value=int(base)), op=ast.Pow(), right=ast.Constant(value=int(power))
        ):
            return int(base**power) if 0 <= power <= 64 else None  # 2**17 is how batch sizes are written
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
    return None


def _choices(tree: ast.Module, name: str, value: str) -> tuple[str, ...]:
    """Keys of the top-level dict that has this value among them, as in `OPTIMIZERS = {"adam": ..., "sgd": ...}`."""
    for line in tree.body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(line.value, ast.Dict):
            keys = [k.value for k in line.value.keys if isinstance(k, ast.Constant)]
            if value in keys:
                return tuple(k for k in keys if isinstance(k, str))
    usual = USUAL_CHOICES.get(trait_of(name).category or "", ())
    return usual if value in usual else ()


# ---- What was tried ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Past:
    """An experiment of the tag, by whichever agent."""

    experiment_id: str
    status: str
    config: Config | None
    """Constants that differ from the tag's base commit; None: unknown."""
    category: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Knowledge:
    """All inputs of a proposal, except for chance."""

    base: Config
    """Every constant as the tag's base commit has it."""
    standing: Mapping[str, Constant]
    """The constants of the script as it is now: the best so far."""
    past: Sequence[Past]
    """Oldest first."""
    near_misses: Sequence[str] = ()
    """Ids, the closest first."""

    @property
    def config(self) -> dict[str, Value]:
        """The constants in which the script differs from the tag's base commit."""
        return self.with_changes({})

    def with_changes(self, changes: Config) -> dict[str, Value]:
        """The same for the script with these changes."""
        now = {name: c.value for name, c in self.standing.items()} | dict(changes)
        return {name: v for name, v in now.items() if name in self.base and v != self.base[name]}

    def was_tried(self, changes: Config) -> bool:
        """Whether some experiment had the script's constants with these changes."""
        wanted = self.with_changes(changes)
        return wanted == self.config or any(p.config == wanted for p in self.past)

    @cached_property
    def by_id(self) -> dict[str, Past]:
        """Every experiment by its id."""
        return {p.experiment_id: p for p in self.past}

    @cached_property
    def moved(self) -> dict[str, dict[str, tuple[Value, Value]]]:
        """What each experiment changed on top of its first parent, from and to, by experiment and constant."""
        return {p.experiment_id: self._moved_by(p) for p in self.past}

    def _moved_by(self, one: Past) -> dict[str, tuple[Value, Value]]:
        parent = self.by_id.get(one.parents[0]) if one.parents else None
        before = {**self.base, **((parent.config if parent else None) or {})}
        after = {**self.base, **(one.config or {})}
        return {name: (before[name], after[name]) for name in self.base if before[name] != after[name]}


# ---- The proposal ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchStrategy:
    """What the lab suggests."""

    mode: str
    temperature: float
    explore_ratio: float
    underexplored: Sequence[str] = ()
    yielding: Sequence[str] = ()


@dataclass(frozen=True)
class ProposedChange:
    """One idea: the constants to set, and how to register it."""

    changes: dict[str, Value]
    category: str
    description: str
    hypothesis: str
    parents: tuple[str, ...] = ()
    """Experiments it is made of, besides the one it is built on."""


def propose(known: Knowledge, strategy: SearchStrategy, rng: random.Random) -> ProposedChange:
    """The next idea in the strategy's mode, or exploration where that mode has nothing new to offer.

    Raises LookupError for a script without a constant to change.
    """
    match strategy.mode:
        case "combine":
            found = combine(known)
        case "ablation":
            found = ablate(known)
        case "exploit" if rng.random() >= strategy.explore_ratio:
            found = exploit(known, strategy, rng)
        case _:
            found = None
    return found or explore(known, strategy, rng)


ENOUGH_REFINED = 2
"""Failed tries after which a kept change is no longer varied."""


def combine(known: Knowledge) -> ProposedChange | None:
    """Unite the closest two near misses of different categories that were not tried together."""
    near = [known.by_id[i] for i in known.near_misses if i in known.by_id]
    for a, b in combinations(near, 2):
        first, second = (known.moved[one.experiment_id] for one in (a, b))
        if a.category == b.category or first.keys() & second.keys():
            continue
        wanted = {name: to for name, (_, to) in {**first, **second}.items() if name in known.standing}
        changes = {name: to for name, to in wanted.items() if known.standing[name].value != to}
        if len(changes) > 1 and not known.was_tried(changes):
            both = (a.experiment_id, b.experiment_id)
            said = f"{' and '.join(both)} are better together than apart."
            return _proposal(known, changes, "combination", said, both)
    return None


def ablate(known: Knowledge) -> ProposedChange | None:
    """Revert the newest kept change."""
    keeps = [p.experiment_id for p in reversed(known.past) if p.status == "keep"]
    for name in [*(name for keep in keeps for name in known.moved[keep]), *known.config]:
        changes = {name: known.base[name]}
        if name in known.standing and not known.was_tried(changes):
            said = f"{name} does not need to differ from where it began: simpler is as good."
            return _proposal(known, changes, "ablation", said)
    return None


def exploit(known: Knowledge, strategy: SearchStrategy, rng: random.Random) -> ProposedChange | None:
    """A smaller step than usual on the constant that the last keep changed."""
    since: list[str] = []  # changes after that keep, one entry per try
    for tried in reversed(known.past):
        changed = known.moved[tried.experiment_id]
        if tried.status == "keep" and changed:
            names = [n for n in changed if n in known.standing and since.count(n) < ENOUGH_REFINED]
            return _first_new(known, names, 0.7 * strategy.temperature, rng)
        since += changed
    return None


def explore(known: Knowledge, strategy: SearchStrategy, rng: random.Random) -> ProposedChange:
    """A random constant. Underexplored categories and good prospects are more likely."""
    weights = {name: _prospects(known, strategy, name) for name in known.standing}
    names = [name for name in weights if weights[name] > 0]
    # Efraimidis & Spirakis 2006, algorithm A: a weighted draw without replacement.
    names.sort(key=lambda name: rng.random() ** (1 / weights[name]), reverse=True)
    if rng.random() < strategy.explore_ratio:
        names.sort(key=lambda n: trait_of(n).category not in strategy.underexplored)
    found = _first_new(known, names, strategy.temperature, rng) or _any_of(known, names, strategy, rng)
    if found is None:
        raise LookupError("the script has no top-level constant to change")
    return found


def _prospects(known: Knowledge, strategy: SearchStrategy, name: str) -> float:
    trait = trait_of(name)
    if trait.category is None:
        return 0.0
    weight = trait.weight * (1.5 if trait.category in strategy.yielding else 1.0)
    if trait.category == next(iter(strategy.underexplored), None):
        weight *= 2  # what the lab suggests first
    failed = 0
    for tried in known.past:
        if name in known.moved[tried.experiment_id]:
            if tried.status == "keep":
                weight, failed = weight * 1.3, 0
            elif tried.status in OPEN:
                weight *= 0.3  # it tells more once it is known
            else:
                failed += 1
    weight *= 0.5 ** max(failed - 1, 0)  # one failure only says to try the other direction
    if isinstance(known.standing[name].value, str):
        others = [c for c in known.standing[name].choices if c != known.standing[name].value]
        weight *= sum(_failures(known, name, choice) == 0 for choice in others) / max(len(others), 1)
    return max(weight, 0.01)


def _failures(known: Knowledge, name: str, value: Value) -> int:
    """How often setting this constant to this value was tried and not kept."""
    tried = ((p.status, known.moved[p.experiment_id].get(name)) for p in known.past)
    return sum(
        status not in ("keep", *OPEN) and moved is not None and moved[1] == value for status, moved in tried
    )


def _first_new(
    known: Knowledge, names: Sequence[str], temperature: float, rng: random.Random
) -> ProposedChange | None:
    for stretch in (1.0, 0.5, 2.0, 3.0, 0.25):
        for name in names:
            for value in moves(known, name, temperature * stretch, rng):
                if not known.was_tried({name: value}):
                    return _single(known, name, value)
    return None


def _any_of(
    known: Knowledge, names: Sequence[str], strategy: SearchStrategy, rng: random.Random
) -> ProposedChange | None:
    """A repeat, because nothing else is left. It measures the noise."""
    for name in names:
        for value in moves(known, name, strategy.temperature, rng):
            return _single(known, name, value)
    return None


def _single(known: Knowledge, name: str, value: Value) -> ProposedChange:
    old = known.standing[name].value
    said = f"{name} at {value!r} instead of {old!r} scores better."
    return _proposal(known, {name: value}, trait_of(name).category or "other", said)


def _proposal(
    known: Knowledge, changes: dict[str, Value], category: str, said: str, parents: tuple[str, ...] = ()
) -> ProposedChange:
    what = ", ".join(
        f"{name} {_shown(known.standing[name].value)} -> {_shown(v)}" for name, v in changes.items()
    )
    return ProposedChange(changes, category, what, said, parents)


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else repr(value)


# ---- Values near a constant's value ------------------------------------------------------------------------


def moves(known: Knowledge, name: str, temperature: float, rng: random.Random) -> Iterator[Value]:
    """Other values for a constant, the most promising first; a number moves by about 2 to the `temperature`."""
    constant = known.standing[name]
    match constant.value:
        case bool(value):
            yield not value
        case str(value):
            others = [choice for choice in constant.choices if choice != value]
            rng.shuffle(others)
            yield from sorted(others, key=lambda choice: _failures(known, name, choice))
        case int(value) | float(value):
            size = temperature * rng.uniform(0.7, 1.3)
            first = rng.random() < _upward(known, name)
            for up in (first, not first):
                moved = step(value, trait_of(name).kind, size if up else -size)
                if moved is not None and moved != value:
                    yield moved


def _upward(known: Knowledge, name: str) -> float:
    """Probability that up is better, from the last try of this constant, else from its trait."""
    now = known.standing[name].value
    for tried in reversed(known.past):
        moved = known.moved[tried.experiment_id]
        if list(moved) != [name] or tried.status in OPEN:
            continue
        before, after = moved[name]
        if isinstance(before, str) or isinstance(after, str) or isinstance(now, str):
            break
        if tried.status == "keep":
            return 0.85 if after > before else 0.15
        return 0.1 if after > now else 0.9
    return trait_of(name).upward


def step(value: float, kind: Kind, size: float) -> float | None:
    """A number `size` octaves up (below zero: down), in the shape of its kind; None if there is none."""
    factor = 2.0**size
    if isinstance(value, int):
        return _step_whole(value, factor, doubling=kind == "doubling")
    if kind == "share" and 0 <= value <= 1:
        by = max(0.05, round(6 * abs(size)) * 0.05)
        return min(max(round(value + math.copysign(by, size), 4), 0.0), 0.9)
    if kind == "near one" and 0 < value < 1:
        return round(1 - min(_rounded((1 - value) / factor), 0.9), 8)
    if value == 0:
        return _rounded(0.1 * factor) if size > 0 else None
    return _rounded(value * factor)


def _step_whole(value: int, factor: float, *, doubling: bool) -> int | None:
    up = factor > 1
    if value <= 0:
        return value + 1 if up else None
    if doubling:
        return value * 2 if up else value // 2 or None
    grain = 8 if value >= 16 and value % 8 == 0 else 1  # what was a multiple of 8 stays one
    moved = round(value * factor / grain) * grain
    if moved == value:
        moved += grain if up else -grain
    return moved if moved > 0 else None


def _rounded(value: float) -> float:
    """Round to two significant digits: finer differences are below the noise."""
    return float(f"{value:.2g}")
