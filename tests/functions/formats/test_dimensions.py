"""A dimensions.toml is read whole or refused with the place; what a scan prints, the reader reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.constants import patch_constants, read_constants
from functions.formats.dimensions import LONGEST_FILE, read_dimensions, scan, scanned_file
from functions.swarm.dimensions import PROFILES, dimensions_of
from functions.swarm.rules.dimensions import MOST, checked, value_of
from functions.swarm.rules.scanning import suggestion
from state.errors import Invalid

TINYLM = (Path(__file__).parents[3] / "examples" / "tinylm" / "train.py").read_text()

FILE = """\
# what varies
[[dimension]]
name = "LR"
dtype = "float_log"
min = 1e-4
max = 1e-1

[[dimension]]
name = "DEPTH"
dtype = "int"
min = 4
max = 24

[[hypothesis]]
statement = "a deeper model learns faster"
config_constraint = { DEPTH = 12 }
"""


def fields(text: str) -> list[dict[str, Any]]:
    return [d.model_dump(exclude_unset=True) for d in read_dimensions(text).dimensions]


def test_a_file_is_read_in_its_order_with_its_hypotheses() -> None:
    read = read_dimensions(FILE)

    assert fields(FILE) == [
        {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1},
        {"name": "DEPTH", "dtype": "int", "min": 4, "max": 24},
    ]
    assert [(h.statement, h.config_constraint) for h in read.hypotheses] == [
        ("a deeper model learns faster", {"DEPTH": 12})
    ]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("name = ", "name : ", "line 3"),
        ("max = 24", "max = 4", "line 8, dimension 'DEPTH': min 4 is not below max 4"),
        ('"int"', '"integer"', "line 8, dimension 'DEPTH': dtype: Input should be"),
        ("max = 24", "mx = 24", "line 8, dimension 'DEPTH': there is no field 'mx'"),
        ("max = 24", "", "line 8, dimension 'DEPTH': a int has min and max"),
        ('name = "DEPTH"', "", "line 8, dimension 2: it has no name"),
        ('name = "DEPTH"', 'name = "LR"', "'LR': there are two dimensions of this name"),
        ("max = 24", "max = 24\nimportance = 0.5", "importance is measured, not declared"),
        ("max = 24", "max = nan", "line 8, dimension 'DEPTH': max: Input should be a finite number"),
        ("[[dimension]]", "[[dimensions]]", "a dimensions.toml has no 'dimensions'"),
        ("[[hypothesis]]", "[hypothesis]", "hypothesis is no list of tables"),
        ("statement =", "claim =", "hypothesis 1: it has no statement"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_a_remedy(before: str, after: str, told: str) -> None:
    with pytest.raises(Invalid) as refusal:
        read_dimensions(FILE.replace(before, after))
    assert told in refusal.value.detail
    assert refusal.value.hint


@pytest.mark.parametrize(
    "text",
    [
        *("", "# nothing", "[[hypothesis]]\n", "dimension = 1", "dimension = [1]"),
        *("x" * (LONGEST_FILE + 1), "a = " + "[" * 5000, "a = 1" + "0" * 5000, "a = 1\x00"),
        "\n".join(f'[[dimension]]\nname = "D{n}"\ndtype = "int"\nmin = 1\nmax = 2' for n in range(MOST + 1)),
    ],
    ids=range(10),
)
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        read_dimensions(text)
    assert refusal.value.hint


# -- the profiles


def test_the_profiles_are_those_that_were_published() -> None:
    found = {
        profile: {
            d.name: (d.dtype, *(d.categories if d.categories is not None else (d.min, d.max)))
            for d in dimensions_of(profile)
        }
        for profile in PROFILES
    }

    assert found == {
        "nanochat": {
            "DEPTH": ("int", 4, 24),
            "learning_rate": ("float_log", 1e-4, 3e-2),
            "TOTAL_BATCH_SIZE": ("categorical", 16384, 32768, 65536, 131072),
            "DEVICE_BATCH_SIZE": ("int", 4, 64),
            "WINDOW_PATTERN": ("categorical", "L", "SL", "SSL", "SSSL"),
            "head_dim": ("categorical", 64, 128),
            "weight_decay": ("float_log", 1e-4, 1e-1),
            "muon_lr": ("float_log", 1e-4, 1e-2),
        },
        "mnist": {
            "LR": ("float_log", 1e-4, 1e-1),
            "BATCH_SIZE": ("categorical", 16, 32, 64, 128, 256),
            "HIDDEN_SIZE": ("int", 32, 512),
            "N_LAYERS": ("int", 1, 5),
            "WEIGHT_DECAY": ("float_log", 1e-6, 1e-1),
            "OPTIMIZER": ("categorical", "adam", "sgd"),
        },
    }


# -- scanning a train.py


def test_a_scan_of_the_example_proposes_its_hyperparameters_and_neither_seed_nor_budget() -> None:
    found = {d.name: d.model_dump(exclude_unset=True, exclude={"name"}) for d, _ in scan(TINYLM).found}

    assert found["LEARNING_RATE"] == {"dtype": "float_log", "min": 0.0001, "max": 0.01}
    assert found["WIDTH"] == {"dtype": "int", "min": 24, "max": 96}
    assert found["BATCH_SIZE"] == {"dtype": "categorical", "categories": [64, 128, 256, 512, 1024]}
    assert found["OPTIMIZER"] == {"dtype": "categorical", "categories": ["adam", "lion", "sgd"]}
    assert found["BETA1"] == {"dtype": "float", "min": 0.0, "max": 0.99}
    assert set(scan(TINYLM).left_out) == {"SEED", "WEIGHTS", "TOTAL_WALL_CLOCK_TIME", "TIME_BUDGET"}
    text = scanned_file(scan(TINYLM), "train.py")
    assert 'name = "LEARNING_RATE"  # 0.001 now' in text
    assert 'categories = ["adam", "lion", "sgd"]' in text
    assert "#   SEED: " in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, {"dtype": "categorical", "categories": [True, False]}),
        (False, {"dtype": "categorical", "categories": [False, True]}),
        *((1, {"dtype": "int", "min": 1, "max": 4}), (12, {"dtype": "int", "min": 6, "max": 24})),
        *((0, {"dtype": "int", "min": 0, "max": 4}), (-3, {"dtype": "int", "min": -6, "max": -1})),
        (2**17, {"dtype": "categorical", "categories": [2**15, 2**16, 2**17, 2**18, 2**19]}),
        (3e-4, {"dtype": "float_log", "min": 3e-5, "max": 3e-3}),
        (0.1, {"dtype": "float_log", "min": 0.01, "max": 1.0}),
        (0.3, {"dtype": "float", "min": 0.15, "max": 0.6}),
        (0.999, {"dtype": "float", "min": 0.99, "max": 0.999}),
        (0.99995, {"dtype": "categorical", "categories": [0.99995]}),
        (0.0, {"dtype": "float", "min": 0.0, "max": 1.0}),
        (-2.5, {"dtype": "float", "min": -5.0, "max": -1.25}),
        ("SSSL", {"dtype": "categorical", "categories": ["SSSL"]}),
    ],
)
def test_a_range_lies_around_the_value_of_its_constant(value: object, expected: dict[str, Any]) -> None:
    found = suggestion("X", value)
    assert not isinstance(found, str)
    assert found.model_dump(exclude_unset=True, exclude={"name"}) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("SEED", 1), ("random_state", 1), ("TOTAL_WALL_CLOCK_TIME", 300), ("__version__", "1")),
        *(("DATA", "data/train.bin"), ("OUT_DIR", "out"), ("API_KEY", "hf_abc"), ("AUTH", "ann")),
        ("RUN_KEY", "0123456789abcdef0123456789abcdef01234567"),
        *(("LAYERS", [1, 2]), ("BLOB", b"x"), ("HUGE", 10**400), ("TINY", 1e-200), ("größe", 3)),
        *(("A" * 65, 3), ("TEXT", "two\nlines")),
    ],
)
def test_what_no_search_should_touch_is_left_out_with_a_reason(name: str, value: object) -> None:
    reason = suggestion(name, value)
    assert isinstance(reason, str)
    assert reason


VALUES = (
    st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    | st.none()
)
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_any_script_s_constants_are_proposed_in_a_file_that_reads_back(constants: dict[str, Any]) -> None:
    script = patch_constants("".join(f"{name} = 0\n" for name in constants), constants)

    try:
        found = scan(script)
    except Invalid as problem:
        reason = problem.detail
        assert "no top-level constant" in reason
        return

    text = scanned_file(found, "train.py")
    assert read_dimensions(text).dimensions == [declared for declared, _ in found.found]
    assert {d.name for d, _ in found.found} | set(found.left_out) == set(read_constants(script))
    for declared, value in found.found:
        dimension = checked(declared)
        if dimension.categories is not None or dimension.dtype == "int":
            assert value_of(dimension, value) == value
        else:
            assert dimension.min is not None
            assert dimension.max is not None
            assert dimension.min <= value <= dimension.max  # type: ignore[operator]  # a range is of a number
