"""Constants are read and set exactly, and nothing else in the script moves."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.constants import (
    patch_constants,
    read_constants,
    reseeded,
    settable_constants,
    trained_source,
    with_seeds,
)
from state.errors import Invalid

SCRIPT = '''"""Tränt ein Modell — nicht ASCII."""
import math
import time

DEPTH = 8  # layers: tief
LR: float = 3e-4; NAME = "grün"
TOTAL_BATCH = 2**17
DEVICE_BATCH = 64 * 1024
BETAS = (0.9, -0.95)
LAYERS = [
    1,
    2,
]
OPTIONS = {"a": 1, "b": None}
FLAG = True
COMPUTED = math.sqrt(2)
TWICE = 1
if FLAG:
    TWICE = 2
def f():
    LOCAL = 3
    return LOCAL
'''


def test_literals_and_arithmetic_over_numbers_are_constants() -> None:
    assert read_constants(SCRIPT) == {
        "DEPTH": 8,
        "LR": 3e-4,
        "NAME": "grün",
        "TOTAL_BATCH": 131072,
        "DEVICE_BATCH": 65536,
        "BETAS": (0.9, -0.95),
        "LAYERS": [1, 2],
        "OPTIONS": {"a": 1, "b": None},
        "FLAG": True,
    }


def test_only_the_literals_change_and_every_other_byte_stays() -> None:
    patched = patch_constants(
        SCRIPT, {"NAME": "rot", "LR": 6e-4, "TOTAL_BATCH": 2**19, "LAYERS": [3], "DEPTH": 12}
    )

    assert patched == (
        SCRIPT.replace("DEPTH = 8", "DEPTH = 12")
        .replace("3e-4", "0.0006")
        .replace('"grün"', "'rot'")
        .replace("2**17", "524288")
        .replace("[\n    1,\n    2,\n]", "[3]")
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "# é\x0c\n", "S = '''ü\n\u2028ö'''\n"])
def test_any_line_ending_and_byte_order_mark_survives(newline: str, begin: str) -> None:
    source = newline.join([begin + "A = 'ö'; X = 1 # ü", "B = (2)", ""])
    patched = patch_constants(source, {"X": -1.5, "B": None})
    assert patched == newline.join([begin + "A = 'ö'; X = -1.5 # ü", "B = (None)", ""])


@pytest.mark.parametrize(
    ("source", "name", "reason"),
    [
        (SCRIPT, "WIDTH", "'WIDTH' is not a top-level name of the script; available: BETAS, DEPTH"),
        (SCRIPT, "LOCAL", "'LOCAL' is not a top-level name"),
        *((SCRIPT, name, f"{name!r} is not assigned a literal") for name in ("COMPUTED", "math", "f")),
        *(
            (f"X = 1\n{block}\n", "X", "'X' is bound by a loop or another block, too")
            for block in ("for X in []: pass", "with a as X: pass", "class X: pass", "if (X := 3): pass")
        ),
    ],
)
def test_a_name_that_is_no_constant_is_refused_with_the_names_there_are(
    source: str, name: str, reason: str
) -> None:
    with pytest.raises(Invalid, match=reason):
        patch_constants(source, {name: 1})


@pytest.mark.parametrize(
    "second",
    [
        *("X += 1", "for X in []: pass", "def f():\n    global X", "import X", "from a import b as X"),
        *("del X", "with a as X: pass", "class X: pass", "if a:\n    X = 2"),
        *("try: pass\nexcept E as X: pass", "(X := 3)", "X, Y = a"),
    ],
)
def test_a_second_binding_of_any_form_makes_a_name_no_constant(second: str) -> None:
    assert read_constants(f"X = 1\n{second}\n") == {}


def test_a_name_that_is_bound_again_is_set_at_each_of_its_top_level_literals() -> None:
    patched = patch_constants("X = 1\nif a:\n    X = 2\nX = 3\nX += 1\nX = f(X)\n", {"X": 9})
    assert patched == "X = 9\nif a:\n    X = 2\nX = 9\nX += 1\nX = f(X)\n"
    assert settable_constants(patched) == {"X": 9}


def test_seeds_are_set_whatever_their_names() -> None:
    seeds = ("SEED", "seed", "RANDOM_STATE", "manualSeed", "rng_key", "torch_seed_2")
    others = {
        "N_SEEDS": 3,
        "SEED_LENGTH": 8,
        "seed_text": "a",
        "random_seed": None,
        "USE_SEED": True,
        "STATE": 1,
    }
    found = reseeded({**dict.fromkeys(seeds, 1), "SEEDS": [1, 2], **others}, 7)
    assert found == {**dict.fromkeys(seeds, 7), "SEEDS": [7, 8]}


@pytest.mark.parametrize(
    "line",
    [
        *("seed = 1", "model.seed = 1", "torch.manual_seed(1)", "np.random.default_rng(1)"),
        *("random.seed(1)", "torch.manual_seed(1 + rank)", "Forest(random_state=1)"),
        *("def main(seed: int = 1): pass", "f(rng_seed=1)", "config = {'seed': 1}"),
        *("class C:\n    seed: int = 1", "def f():\n    seed = 1", "SEEDS = [1, 1]"),
        *("p.add_argument('-s', '--seed', type=int, default=1)", "def f(*, seed=1): pass"),
        *("jax.random.PRNGKey(1)", "DEFINE_integer('seed', 1, 'the seed')", "Seed: int = 1"),
        *("set_seed(seed=1, deterministic=True)", "seed = int(os.environ.get('SEED', '1'))"),
        *("os.environ['PYTHONHASHSEED'] = '1'", "getenv('SEED', 1)", "config['seed'] = 1"),
        *("config.setdefault('seed', 1)", "WIDTH, SEED = 8, 1", "a = seed = 1", "rng = random.Random(1)"),
        *("Generator(np.random.PCG64(1))", "key = jax.random.key(1)"),
        *("seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1", "seed = args.seed or 1", "f(seed := 1)"),
        *("class C:\n    seed: int = field(default=1)", "class C:\n    seed: int = Field(1, ge=0)"),
    ],
)
def test_a_seed_is_found_wherever_the_script_spells_it_out(line: str) -> None:
    assert with_seeds(f"# é 1\n{line}\nN = 1\n", 7) == f"# é 1\n{line.replace('1', '7')}\nN = 1\n"


@pytest.mark.parametrize(
    "line",
    [
        *("n_seeds = 3", "seed = None", "use_seed = True", "seed = random.randint(1, 9)", "f('N', 1)"),
        *("seed_length = 8", "f(size=1)", "exceeds = 1", "state = 1", "range(1)", "x = seed + 1"),
        "seed = f(1)",
    ],
)
def test_other_numbers_are_no_seeds(line: str) -> None:
    assert with_seeds(f"{line}\n", 7) == f"{line}\n"


def test_a_run_s_seed_goes_to_the_top_level_seeds_or_else_to_all_others() -> None:
    others = "random.seed(1)\n"
    assert trained_source(f"SEED = 1\n{others}", {}, 7) == f"SEED = 7\n{others}"
    assert trained_source(others, {}, 7) == "random.seed(7)\n"
    assert trained_source(f"SEED = 1\n{others}", {"SEED": 2}, 7) == f"SEED = 2\n{others}"
    assert trained_source(others, {}, None) == others


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [1, -math.inf], {"a": math.nan}, object(), b"x", {1}, 1j]
)
def test_a_value_that_no_literal_can_express_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match="'X'"):
        patch_constants("X = 1", {"X": value})


@pytest.mark.parametrize(
    "source",
    [
        *("X = 9**9**9", "X = 1 << 10**9", "X = 'a' * 10**9", "X = [0] * 10**9", "X = 1/0"),
        *("X = 2.0**99999", "X = " + "-" * 90 + "1", "X = Y = 3", "X: int", "X = {**a}", "X = f'{a}'"),
        "X = ...",
    ],
)
def test_what_costs_too_much_or_has_no_plain_value_is_no_constant(source: str) -> None:
    assert "X" not in read_constants(source)


@pytest.mark.parametrize("source", ["X = ", "X = 1\0", "X = '\ud800'", "(" * 100_000])
def test_a_script_that_does_not_parse_is_invalid(source: str) -> None:
    with pytest.raises(Invalid, match="does not parse"):
        patch_constants(source, {"X": 1})


def test_a_script_that_would_take_gigabytes_to_parse_is_invalid_at_once() -> None:
    begin = time.process_time()
    with pytest.raises(Invalid, match="4,000,000 characters"):
        patch_constants("A=1\n" * 1_000_000, {"A": 1})
    assert time.process_time() - begin < 5


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(values, st.sampled_from(["1", "-2", "2**17", "'ö'", "None", "[1,\n 2]", "(3)", "1, 2"]))
def test_every_value_reads_back_exactly_over_every_literal(value: object, old: str) -> None:
    source = f"É = 'é'; X = {old} # ü\nY = 1\n"
    patched = patch_constants(source, {"X": value})
    assert ascii(read_constants(patched)["X"]) == ascii(value)
    assert read_constants(patched)["Y"] == 1
    assert patched.endswith(" # ü\nY = 1\n") or old == "(3)"


PIECES = st.sampled_from(
    [
        *"AB=()[]{}:,+-*;\\#'\n\r\0\t\f \ufeffé𝒜ﬁ¹\ud800",
        *("LR", "3e-4", "1_0", "0x", "1j", "b'x'", "f'{A}'", "True", "...", "**", '"""'),
        *("if ", "del ", "global ", "def f():", "lambda:"),
    ]
)


@given(
    st.lists(PIECES, max_size=25).map("".join),
    st.dictionaries(st.sampled_from(["A", "B", "LR", "𝒜", "fi"]), scalars, min_size=1, max_size=2),
)
def test_a_source_is_refused_or_has_exactly_the_values(source: str, wanted: dict[str, object]) -> None:
    with contextlib.suppress(Invalid):
        found = settable_constants(patch_constants(source, wanted))
        assert {name: ascii(found[name]) for name in wanted} == {n: ascii(v) for n, v in wanted.items()}
