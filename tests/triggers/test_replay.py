"""`nightjar replay` of a results.tsv: what it shows, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from state.errors import Invalid
from triggers.cli.replay import command

EXCERPTS = Path(__file__).parents[1] / "data" / "logs"
PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "autoresearch_logs"
PLAIN = EXCERPTS / "plain.tsv"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def document(*words: str | Path) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_keeps_within_noise_are_flagged_and_would_run_again() -> None:
    found = document(PLAIN)

    assert (found["keep_rule"], found["sigma"], found["sigma_df"]) == ("confirmed", 0.0006, None)
    assert (found["runs"], found["keeps"], found["within_noise"]) == (6, 3, 2)
    assert found["claimed"] == pytest.approx(0.0143)
    assert found["verdicts"]["keep"] == {"keeps": 1, "claimed": pytest.approx(0.014)}
    assert found["verdicts"]["retest"] == {"keeps": 1, "claimed": pytest.approx(0.0004)}
    assert found["verdicts"]["discard"] == {"keeps": 1, "claimed": pytest.approx(-0.0001)}
    assert 0.2 < found["false_share"] < 0.4
    assert found["skipped"] == [
        {"name": "line 6", "reason": "its status is 'crash'", "text": "four times the batch (out of memory)"}
    ]


def test_a_person_sees_the_keeps_and_what_would_have_differed() -> None:
    shown = run(PLAIN).stdout

    rows = {line.split("│")[1].strip(): line for line in shown.splitlines() if line.startswith("│")}
    assert set(rows) == {"line 2", "line 3", "line 4", "line 7", "line 8"}
    assert "within noise" in rows["line 4"]
    assert "run again" in rows["line 4"]
    assert "within noise" not in rows["line 3"]
    assert "Keeps after the first: 3. Within noise (P(better) under 95%): 2." in shown
    assert "not judged, because its status is 'crash': line 6" in shown


def test_a_larger_sigma_doubts_more() -> None:
    assert document(PLAIN, "--sigma", "0.02")["within_noise"] == 3
    assert document(PLAIN, "--sigma", "0")["within_noise"] == 1


def test_strict_asks_for_no_second_run() -> None:
    found = document(PLAIN, "--keep-rule", "strict")

    assert found["verdicts"]["retest"]["keeps"] == 0
    assert [j["name"] for j in found["judged"] if j["differs"]] == ["line 7", "line 8"]


def test_every_line_that_was_left_out_is_told() -> None:
    shown = run(EXCERPTS / "windows.tsv").stdout

    for reason in ("it is the header again: line 6", "it has no status: line 10", "it has no value: line 3"):
        assert f"not judged, because {reason}" in shown
    assert "line 12: 'about 0.8' is no number: read as no value" in shown


def test_higher_can_be_better(tmp_path: Path) -> None:
    file = tmp_path / "log.tsv"
    file.write_text("commit\taccuracy\tstatus\n1a2b3c4\t0.5\tkeep\n2b3c4d5\t0.9\tkeep\n")

    found = document(file, "--maximize", "--sigma", "0.01", "--keep-rule", "strict")

    assert (found["metric"], found["claimed"]) == ("accuracy", pytest.approx(0.4))
    assert [j["verdict"] for j in found["judged"]] == ["keep", "keep"]


def test_repeats_in_the_file_measure_its_noise(tmp_path: Path) -> None:
    file = tmp_path / "log.tsv"
    file.write_text(
        "commit\tval_bpb\tstatus\tdescription\n1a2b3c4\t0.50\tkeep\tbase\n1a2b3c4\t0.52\tdiscard\tbase\n"
    )

    found = document(file)

    assert (found["sigma"], found["sigma_df"]) == (pytest.approx(0.02 / 2**0.5), 1)


def test_an_unusual_metric_needs_its_sigma_named(tmp_path: Path) -> None:
    file = tmp_path / "log.tsv"
    file.write_text("commit\taccuracy\tstatus\n1a2b3c4\t0.5\tkeep\n")

    refused = run(file).exception

    assert isinstance(refused, Invalid)
    assert refused.hint == "give its standard deviation with --sigma"


@pytest.mark.parametrize(
    "words", [("nothing.tsv",), ("no/such/file",), ("x" * 5000,), (str(PLAIN), "--sigma", "nan")]
)
def test_a_wrong_use_is_told_as_one(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public logs are not here")
def test_public_logs_are_replayed_and_their_noisy_keeps_flagged() -> None:
    found = {file.name: document(file) for file in PUBLIC.glob("*.tsv")}

    assert len(found) >= 8
    for name, its in found.items():
        kept = [j for j in its["judged"] if j["kept"]]
        assert its["keeps"] == len(kept) - 1 >= 3, name
        assert its["within_noise"] == sum(j["within_noise"] for j in kept), name
    longest = next(its for name, its in found.items() if "H100" in name)
    assert (longest["runs"], longest["keeps"], longest["within_noise"]) == (125, 22, 19)
