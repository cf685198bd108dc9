"""Logs as agents really write them: no line is lost without a word, and the status column is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.results_log import ResultsLog, number_in, read_log
from state.errors import Invalid

EXCERPTS = Path(__file__).parents[2] / "data" / "logs"
CELLS = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), max_size=8)
ODD = st.sampled_from(
    ["nan", "0.000000", "-", "0.97", "1e999", "keep", "KEPT", "crash", "tentative", "#", "a1b2c3d"]
)
JSONS = st.lists(
    st.dictionaries(st.sampled_from(["val_bpb", "status", "loss", "a"]), st.none() | st.floats() | st.text())
    | st.none()
).map(lambda items: "\n".join(map(json.dumps, items)).encode())
LINES = st.lists(st.lists(CELLS | ODD, max_size=8).map("\t".join), max_size=12)


def excerpt(name: str) -> ResultsLog:
    return read_log((EXCERPTS / name).read_bytes())


def lines_of(raw: bytes) -> int:
    """Lines with something in them."""
    return sum(bool(line.strip()) for line in raw.decode("utf-8-sig", errors="replace").split("\n"))


def test_the_published_columns_are_read_and_the_status_is_believed_whatever_the_values_say() -> None:
    log = excerpt("plain.tsv")
    first = log.rows[1]
    assert (first.line, first.commit, first.value) == (3, "1a2b3c4", 1.19)
    assert (first.outcome, first.description, first.more) == ("keep", "wider MLP", {})
    assert (log.metric, log.skipped, log.notes) == ("val_bpb", [], [])
    outcomes = {row.description: row.outcome for row in log.rows}
    assert outcomes["better, but twice as much code"] == "discard"
    assert outcomes["simpler: no bias"] == "keep"
    assert [(row.line, row.value) for row in excerpt("headless.tsv").rows] == [(1, 0.99), (2, 0.98)]
    assert read_log((EXCERPTS / "plain.tsv").read_text().encode("utf-16")) == log


def test_columns_are_found_by_their_names_in_any_order() -> None:
    log = excerpt("columns.tsv")

    assert [(row.value, row.outcome, row.said) for row in log.rows] == [
        *((2.1, "keep", "Kept"), (2.2, "discard", "reverted"), (2.05, "discard", "tentative")),
        (None, "crash", "infra_retry"),
    ]
    assert log.rows[1].more == {"hypothesis": "more decay helps", "gpu": "b", "note": 'as "expected"'}
    assert [(note.line, note.reason) for note in log.notes] == [
        (6, "'tentative' is neither keep, discard nor crash: read as discard")
    ]
    assert [(line.line, line.reason) for line in log.skipped] == [(1, "it stands above the header")]


def test_a_log_from_windows_is_read_and_every_line_left_out_is_named() -> None:
    log = excerpt("windows.tsv")

    assert [(row.line, row.value, row.outcome) for row in log.rows] == [
        *((2, 0.9, "keep"), (3, None, "discard"), (4, 0.95, "crash"), (7, 0.88, "keep")),
        *((11, None, "keep"), (12, None, "discard")),
    ]
    assert [(line.line, line.reason) for line in log.skipped] == [
        *((6, "it is the header again"), (8, "it is a title or a comment")),
        *((9, "it ends before its value and status"), (10, "it has no status")),
    ]
    assert [row.description for row in log.rows][:2] == ["Kohärenz → 1", 'said "no", twice']
    assert log.rows[3].description == "tabs\there\tand there"
    assert log.notes[0].reason == "'about 0.8' is no number: read as no value"


@pytest.mark.parametrize(
    ("raw", "rows"),
    [
        (
            b"val_bpb\tdescription\tstatus\tseed\n0.9\twith\ttwo\ttabs\tkeep\t7\n",
            [(2, "with\ttwo\ttabs", {"seed": "7"})],
        ),
        (b"val_bpb,description,status\n0.9,wider,deeper,keep\n", [(2, "wider,deeper", {})]),
        (
            b'val_bpb,status,description\n0.9,keep,"one\ntwo"\n0.9,keep,three\n',
            [(2, "one\ntwo", {}), (4, "three", {})],
        ),
    ],
)
def test_a_text_may_have_tabs_commas_and_lines(raw: bytes, rows: list[tuple[int, str, object]]) -> None:
    log = read_log(raw)
    assert [(row.line, row.description, row.more) for row in log.rows] == rows
    assert {(row.value, row.outcome) for row in log.rows} == {(0.9, "keep")}


@pytest.mark.parametrize(
    ("words", "outcomes"),
    [
        (["success", "keep", "discard"], ["discard", "keep", "discard"]),
        (["done", "baseline", "tentative", "crash"], ["none", "none", "none", "crash"]),
        (["crash", "baseline"], ["crash", "keep"]),
    ],
)
def test_other_words_mean_discard_only_beside_verdicts(words: list[str], outcomes: list[str]) -> None:
    rows = "".join(f"0.9{n}\t{word}\n" for n, word in enumerate(words))
    log = read_log(f"val_bpb\tstatus\n{rows}".encode())
    assert [row.outcome for row in log.rows] == outcomes
    assert log.has_verdicts == ("none" not in outcomes)


def test_a_log_without_statuses_is_read_where_its_column_of_values_is_named() -> None:
    raw = b"commit\trmse\tdescription\n37e091b\t16.5\tbaseline\nfcf5016\t-\ttrees\n"
    log = read_log(raw, "rmse")
    assert [(row.value, row.outcome) for row in log.rows] == [(16.5, "none"), (None, "none")]
    assert (log.has_verdicts, log.skipped, log.notes) == (False, [], [])


def test_values_are_known_to_the_finest_digit_that_is_printed() -> None:
    assert read_log(b"val_bpb\tstatus\n0.9\tkeep\n0.985\tkeep\n").resolution == pytest.approx(0.001)
    assert read_log(b"val_bpb\tstatus\n12\tkeep\n1e1\tkeep\n").resolution == 1
    assert read_log(b"val_bpb\tstatus\nnan\tkeep\n").resolution is None


AS_OTHERS = {
    "csv": """commit,val_fbeta,status,description,notes
abc1234,0.80,keep,start,"t=1.4 r=0.8"
abc1235,0.83,keep,"wider, deeper","t=1.3"
abc1236,0.79,discard,no norm,
abc1237,0.000000,crash,big lr,"nan"
""",
    "semicolons": """commit;val_fbeta;status;description
abc1234;0.80;keep;start
abc1235;0.83;keep;wider, deeper
abc1236;0.79;discard;no norm
abc1237;0.000000;crash;big lr
""",
    "markdown": """# Results

| commit | val_fbeta | status | description |
|---|---:|:---:|---|
| `abc1234` | 0.80 | **keep** | start |
| `abc1235` | 0.83 | keep | wider, deeper |
| `abc1236` | 0.79 | discard | no norm |
| `abc1237` | 0.000000 | crash | big lr |
""",
    "json lines": """{"commit": "abc1234", "val_fbeta": 0.80, "status": "keep", "description": "start"}
{"commit": "abc1235", "val_fbeta": 0.83, "status": "keep", "description": "wider, deeper"}
{"commit": "abc1236", "val_fbeta": 0.79, "status": "discard", "description": "no norm"}
{"commit": "abc1237", "val_fbeta": null, "status": "crash", "description": "big lr"}
""",
    "nested json lines": """{"commit": "abc1234", "of": {"val_fbeta": 0.80}, "status": "keep", "description": "start"}
{"commit": "abc1235", "of": {"val_fbeta": 0.83}, "status": "keep", "description": "wider, deeper"}
{"commit": "abc1236", "of": {"val_fbeta": 0.79}, "status": "discard", "description": "no norm"}
{"commit": "abc1237", "of": {}, "status": "crash", "description": "big lr"}
""",
    "a json list": """[
  {"commit": "abc1234", "val_fbeta": 0.80, "status": "keep", "description": "start"},
  {"commit": "abc1235", "val_fbeta": 0.83, "status": "keep", "description": "wider, deeper"},
  {"commit": "abc1236", "val_fbeta": 0.79, "status": "discard", "description": "no norm"},
  {"commit": "abc1237", "val_fbeta": NaN, "status": "crash", "description": "big lr"}
]
""",
}


@pytest.mark.parametrize("text", AS_OTHERS.values(), ids=AS_OTHERS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_log_is_read_in_each_form_that_loops_keep_it_in(text: str, end: str) -> None:
    log = read_log(text.replace("\n", end).encode())

    assert log.metric == "val_fbeta"
    assert [(row.commit, row.value, row.outcome, row.description) for row in log.rows] == [
        *(("abc1234", 0.80, "keep", "start"), ("abc1235", 0.83, "keep", "wider, deeper")),
        *(("abc1236", 0.79, "discard", "no norm"), ("abc1237", None, "crash", "big lr")),
    ]
    assert {line.reason for line in log.skipped} <= {
        "it stands above the header",
        "it is a rule of the table",
    }
    assert log.notes == []


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        ("commit val_bpb val_loss status", "val_bpb"),
        ("commit train_loss val_loss status", "val_loss"),
        ("commit best_val_loss val_loss epoch status", "val_loss"),
        ("commit accuracy memory_gb seconds status", "accuracy"),
        ("commit fbeta num_steps lr status", "fbeta"),
        ("commit mean_val_auc val_loss memory_gb status", None),
        ("commit accuracy f1 status", None),
        ("commit fbeta psnr status", None),
    ],
)
def test_the_column_of_values_is_taken_where_one_alone_fits(columns: str, taken: str | None) -> None:
    names = columns.split()
    row = ["1a2b3c4", *(f"0.{n}" for n in range(1, len(names) - 1)), "keep"]
    raw = f"{chr(9).join(names)}\n{chr(9).join(row)}\n".encode()

    if taken is not None:
        assert read_log(raw).metric == taken
        return
    with pytest.raises(Invalid) as refusal:
        read_log(raw)
    assert str(refusal.value) == f"several columns may hold the values: {names[1]}, {names[2]}"
    assert refusal.value.hint == "name the one that the statuses follow with --metric"
    assert read_log(raw, names[1]).metric == names[1]


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"hello", b"commit\tval_bpb\n1a2b3c4\t0.9\n", b"\x00\xff\xfe"])
def test_what_is_no_log_is_refused_with_a_hint(raw: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        read_log(raw)
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *(("0.97", 0.97), (" -3.5 ", -3.5), ("0.000000", None), ("-0", None), ("nan", None)),
        *(("1e101", None), ("x", None)),
    ],
)
def test_zero_and_what_nobody_measures_are_no_values(cell: str, value: float | None) -> None:
    assert number_in(cell) == value


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_every_line_is_a_row_or_skipped_with_a_reason(lines: list[str], end: str, mark: bool) -> None:
    text = end.join(["commit\tval_bpb\tmemory_gb\tstatus\tdescription", *lines])
    raw = ("\ufeff" * mark + text).encode()

    log = read_log(raw)

    told = [row.line for row in log.rows] + [line.line for line in log.skipped]
    assert sorted(told) == sorted(set(told))
    assert len(told) + 1 == lines_of(raw)
    assert all(line.reason for line in log.skipped + log.notes)
    assert {note.line for note in log.notes} <= {row.line for row in log.rows}
    assert {row.line for row in log.rows if row.said == "tentative"} <= {note.line for note in log.notes}


@given(st.binary(max_size=200) | JSONS | LINES.map(lambda lines: "\n".join(lines).encode()))
def test_any_bytes_are_a_log_or_refused(raw: bytes) -> None:
    try:
        log = read_log(raw)
    except Invalid:
        return
    assert all(row.value is None or row.value != 0 for row in log.rows)
