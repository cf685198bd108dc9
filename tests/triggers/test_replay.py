"""`nightjar replay` of a results.tsv: what it shows, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from click.testing import CliRunner, Result

from functions.kernel.process.lifecycle import Process
from state.errors import Invalid
from tests.labs import open_tag, tried
from triggers.cli.lab_http import LabHttp
from triggers.cli.replay import NOT_COUNTED, OTHER_KEY, Recorded, command, from_lab

EXCERPTS = Path(__file__).parents[1] / "data" / "logs"
PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "autoresearch_logs"
PLAIN = EXCERPTS / "plain.tsv"


HEADER = "commit\tval_bpb\tstatus\tdescription\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "log.tsv"
    file.write_bytes(text.encode())
    return file


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

    rows = {line[:6]: line for line in shown.splitlines() if line.startswith("line ")}
    assert set(rows) == {"line 2", "line 3", "line 4", "line 7", "line 8"}
    assert "within noise" in rows["line 4"]
    assert "run again" in rows["line 4"]
    assert "within noise" not in rows["line 3"]
    assert "Keeps after the first: 3. Within noise (P(better) under 95%): 2." in shown
    assert "not judged, because its status is 'crash': line 6" in shown


def test_the_noise_is_not_below_what_rounding_hides(tmp_path: Path) -> None:
    repeats = "1a2b3c4\t0.99\tkeep\tbase\n1a2b3c4\t0.99\tdiscard\tbase\n"
    measured = document(written(tmp_path, HEADER + repeats + "2b3c4d5\t0.98\tkeep\twider\n"))
    usual = document(written(tmp_path, HEADER + "1a2b3c4\t0.99\tkeep\tbase\n2b3c4d5\t0.98\tkeep\twider\n"))

    assert measured["sigma"] == usual["sigma"] == pytest.approx(0.01 / 12**0.5)
    assert (measured["sigma_df"], usual["sigma_df"]) == (1, None)
    assert measured["sigma_from"] == (
        "measured by repeats, 1 degree of freedom; raised to what values printed in steps of 0.01 hide"
    )
    assert measured["within_noise"] == 1


@pytest.mark.parametrize("word", ["success", "done", "OK"])
def test_a_log_without_verdicts_is_judged_by_its_running_best(tmp_path: Path, word: str) -> None:
    values = ("0.990000", "0.995000", "0.980000", "0.979900")
    rows = "".join(f"{n}a2b3c4\t{value}\t{word}\ttry {n}\n" for n, value in enumerate(values))
    file = written(tmp_path, f"{HEADER}{rows}5a2b3c4\t0.000000\tcrash\tout of memory\n")

    found, shown = document(file), run(file).stdout

    assert (found["keeps_from"], found["runs"], found["keeps"], found["notes"]) == ("running best", 4, 2, [])
    assert [(j["name"], j["kept"]) for j in found["judged"]] == [
        *(("line 2", True), ("line 3", False), ("line 4", True), ("line 5", True))
    ]
    assert f"It has no verdicts ({word}): new code that beat all before it counts as kept" in shown
    assert "running best" in shown


def test_a_hash_of_the_configuration_tells_code_from_code(tmp_path: Path) -> None:
    header = "commit\tconfig_hash\tval_bpb\tstatus\tdescription\n"
    rows = [("c1", "0.9900", "seed 1"), ("c1", "0.9920", "seed 2"), ("c2", "0.9000", "seed 1")]
    text = header + "".join(f"1a2b3c4\t{c}\t{value}\tkeep\t{what}\n" for c, value, what in rows)

    found = document(written(tmp_path, text))

    assert (found["sigma"], found["sigma_df"]) == (pytest.approx(0.002 / 2**0.5), 1)


TWO_COLUMNS = (
    "commit\tmean_val_auc\tval_loss\tmemory_gb\tstatus\tdescription\n"
    "abc1234\t0.81\t0.52\t3.1\tkeep\tstart\nabc1235\t0.84\t0.55\t3.2\tkeep\tcosine\n"
    "abc1236\t0.80\t0.40\t3.1\tdiscard\tlinear\n"
)


@pytest.mark.parametrize(
    ("log", "words", "said", "hint"),
    [
        (
            "commit\tin_words\tstatus\n1a2b3c4\tgood\tkeep\n",
            (),
            "its columns are commit, in_words, status",
            "name the column of values with --metric",
        ),
        (
            "commit\taccuracy\tstatus\n1a2b3c4\t0.5\tkeep\n",
            (),
            "the noise of accuracy is unknown",
            "give its standard deviation with --sigma",
        ),
        (TWO_COLUMNS, ("--sigma", "0.001"), "mean_val_auc, val_loss", None),
        *(
            (
                f"commit\t{metric}\tstatus\n1a2b3c4\t0.50\tkeep\n",
                ("--sigma", "0.01"),
                metric,
                "say --maximize or --minimize",
            )
            for metric in ("psnr", "latency_ms", "score_loss")
        ),
    ],
    ids=["values", "noise", "two columns", "psnr", "latency", "loss"],
)
def test_a_log_that_does_not_say_enough_is_refused_with_the_option_to_give(
    tmp_path: Path, log: str, words: tuple[str, ...], said: str, hint: str | None
) -> None:
    refused = run(written(tmp_path, log), *words).exception

    assert isinstance(refused, Invalid)
    assert said in str(refused)
    assert hint is None or refused.hint == hint


def test_the_options_that_are_given_say_what_a_log_does_not(tmp_path: Path) -> None:
    two = document(written(tmp_path, TWO_COLUMNS), "--sigma", "0.001", "--metric", "mean_val_auc")
    assert (two["metric"], two["direction"]) == ("mean_val_auc", "maximize")
    assert two["claimed"] == pytest.approx(0.03)

    psnr = written(tmp_path, "commit\tpsnr\tstatus\n1a2b3c4\t0.50\tkeep\n2b3c4d5\t0.90\tkeep\n")
    for option, claimed in (("--maximize", 0.4), ("--minimize", -0.4)):
        assert document(psnr, "--sigma", "0.01", option)["claimed"] == pytest.approx(claimed)


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


async def recorded(client: httpx.AsyncClient, tag: str) -> Recorded:
    """The runs of a tag, as the command line reads them."""
    loop = asyncio.get_running_loop()

    class Asking:
        def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
            asked = asyncio.run_coroutine_threadsafe(client.request(method, path, json=body), loop)
            return dict(asked.result().raise_for_status().json())

    return await asyncio.to_thread(from_lab, cast(LabHttp, Asking()), tag)


async def test_of_a_tag_only_runs_that_the_lab_compared_with_its_best_are_judged(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    for value, gpu_class in ((1.0, "H100"), (0.5, "A100"), (0.9, "H100"), (1.1, "H100")):
        await tried(client, value, result={"gpu_class": gpu_class})
    late = process.lab.keys.experiment("mar11-4")
    await process.lab.command("HSET", late, "over_budget", "true")

    found = await recorded(client, "mar11")

    assert [(run.name, run.kept) for run in found.runs] == [("mar11-1", True), ("mar11-3", True)]
    assert [(name, why) for name, why, _ in found.skipped] == [
        ("mar11-2", OTHER_KEY),
        ("mar11-4", NOT_COUNTED),
    ]
