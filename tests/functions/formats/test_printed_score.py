"""The score in a script's output: in a block, in the lines of loggers and bars, and what is no score."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.printed_score import Printed, PrintedScore, nearest
from tests.printing import printed_in


def score(text: str, metric: str = "val_bpb") -> float | None:
    return printed_in(text, metric).metrics.get(metric)


# -- the block


CLOSED = "---\nval_bpb: 0.91\nnum_steps: 10\n---"


@pytest.mark.parametrize(
    ("log", "metrics"),
    [
        (
            "step 9\n---\nval_bpb:  0.9979\ntotal_tokens_M:   499.6\n",
            {"val_bpb": 0.9979, "total_tokens_m": 499.6},
        ),
        ("---\nval_bpb: 0.1\n---\nval_bpb: 0.9979\n", {"val_bpb": 0.9979}),
        (
            "\rstep 1\rstep 2\r---\r\nval_bpb: 1.5\r\nmfu_percent: 39.8\r",
            {"val_bpb": 1.5, "mfu_percent": 39.8},
        ),
        (CLOSED, {"val_bpb": 0.91, "num_steps": 10.0}),
        (f"{CLOSED}\nall done in 3.2 s\nval_loss: 3\n", {"val_bpb": 0.91, "num_steps": 10.0}),
        (f"{CLOSED}\nval_bpb: 0.8\n", {"val_bpb": 0.8}),
        ("---\nval_bpb: 0.91\nINFO reloaded, val_bpb=0.95\n", {"val_bpb": 0.91}),
        ("---\nlr: 0.1\n---\nval_bpb: 1.2\n" + "loss 3.1\n" * 20_000 + "val_bpb: 0.91\n", {"val_bpb": 0.91}),
        ("Depth: 3\nval_bpb: 2\ndepth: 1\nother: 5\n" + "x" * 300_000, {"val_bpb": 2.0, "depth": 1.0}),
    ],
    ids=range(9),
)
def test_the_last_block_or_line_of_the_metric_counts(log: str, metrics: dict[str, float]) -> None:
    assert printed_in(log, "val_bpb").metrics == metrics


@pytest.mark.parametrize("line", ["----", "--- x", "x ---", "-- -", "'---'"])
def test_only_a_line_that_is_exactly_three_dashes_begins_a_block(line: str) -> None:
    assert printed_in(f"{line}\nval_bpb: 1\n", "val_bpb").block is None


@pytest.mark.parametrize(
    "line", ["val bpb: 39.8%", "val bpb = 3", "val bpb: 3", "val_bpb: 1_0", "1x: 3", "val_bpb:"]
)
def test_a_line_of_a_block_that_is_not_a_name_and_a_number_is_passed_over(line: str) -> None:
    assert printed_in(f"---\n{line}\nok: 1\n", "val_bpb").metrics == {"ok": 1.0}


def test_nan_and_infinity_are_handed_on_for_the_caller_to_judge() -> None:
    metrics = printed_in("---\nval_bpb: nan\nloss: -inf\nbig: 1e999\n", "val_bpb").metrics
    assert math.isnan(metrics["val_bpb"])
    assert (metrics["loss"], metrics["big"]) == (-math.inf, math.inf)
    assert math.isnan(score("val_bpb=0.5\nINFO val_bpb=nan") or 0.0)


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("step 00953 (100.0%) | loss: 2.9\n---\nval_bpb: 0.997900\ndepth: 8\n", True),
        ("---\nval_bpb: 0.91\n---\n", True),
        ("---\nval_bpb: 0.91\n---\nwandb: Waiting for the upload\nsaved model.pt\n", True),
        ("---\nepoch: 1\nval_bpb: 0.95\n---\nval_bpb: 0.91\n", True),
        *(("val_bpb: 0.91\n", False), ("epoch 1/10 val_bpb: 0.91\n", False)),
        *(("---\nnum_steps: 10\n", False), ("---\nval_bpb: nan\n", False)),
        *(("---\nepoch: 1\nval_bpb: 0.91\n", False), ("---\nEpoch 1\nval_bpb: 0.91\n---\n", False)),
        ("---\nval_bpb: 0.91\n---\nstep 00100 (10.0%) | loss: 2.3\n", False),
        ("---\nval_bpb: 0.91\nTraceback (most recent call last):\n", False),
    ],
)
def test_a_result_is_whole_once_a_block_ends_with_the_metric_in_it(text: str, finished: bool) -> None:
    score = PrintedScore("val_bpb")
    score.feed(text.encode())
    assert score.is_whole == finished


# -- lines

READ = [
    *("val_bpb: 0.91", "  VAL_BPB:\t9.1e-1", "val_bpb:0.91", "val_bpb 0.91", "val_bpb = 0.91"),
    *("val_bpb -> 0.91", "val_bpb => 0.91", "val_bpb → 0.91", "val_bpb\uff1a0.91", "val_bpb is 0.91."),
    *("val_bpb,0.91", "val_bpb;0.91", "val_bpb: 91.0%", "val_bpb: 0.91 bits/byte", "val_bpb: 0.91bpb"),
    *("val_bpb: 0.91 ± 0.02", "val_bpb: 0.91 (+/- 0.02)"),
    # open bars
    " 80%|## | 4/5 [00:01<00:01]val_bpb: 0.91",
    "........val_bpb: 0.91",
    "5/5val_bpb: 0.91",
    "1/5 [=>...] - ETA: 0s - val_bpb: 1.5\b\b\b\b\b5/5 [=====] - 2s 3ms/step - loss: 0.5 - val_bpb: 0.9100",
    "782/782 - loss: 0.5 - val_bpb: 0.9100 - 2s/epoch - 3ms/step",
    "val_bpb: 1.5\x1b[1A\x1b[2Kval_bpb: 0.91",
    # loggers
    "2026-11-26 13:00:00,123 INFO val_bpb: 0.91",
    "INFO:root:val_bpb: 0.91",
    "INFO:train:val_bpb: 0.91",
    "2026-11-26 13:00:00.123 | INFO     | __main__:main:12 - val_bpb: 0.91",
    "I1126 13:00:00.123456 140000 train.py:12] val_bpb: 0.91",
    "[11/26/26 13:00:00] INFO     val_bpb: 0.91                    train.py:12",
    "2026-11-26 13:00:00,123 - mmdet - INFO - Epoch(val) [1][10]  val_bpb: 0.9100, val_bpb_50: 0.5",
    'level=info msg="eval done" val_bpb=0.91 step=10',
    "2026-11-26T13:00:00Z [info     ] eval                  val_bpb=0.91 step=10",
    *("[rank0]: val_bpb: 0.91", "(TrainTrainable pid=123) val_bpb: 0.91", "wandb:  val_bpb 0.91"),
    *("METRIC val_bpb=0.91", ">>> val_bpb=0.91", "Final val_bpb: 0.91"),
    # values in Python and JSON
    *("{'val_bpb': 0.91}", "{'val_bpb': '0.91', 'epoch': '3.0'}"),
    *('{"step": 10, "metrics": {"val_bpb": 0.91}}', '{"level": "info", "message": "val_bpb: 0.91"}'),
    *('{"name": "val_bpb", "value": 0.91, "step": 10}', "val_bpb: np.float64(0.91)"),
    *("val_bpb: tensor(0.91, device='cuda:0')", "{'val_bpb': Array(0.91, dtype=float32)}"),
    # others beside it
    *("step:10/10 val_bpb:0.91 time:12ms", "epoch 3: train_loss=0.5, val_bpb=0.91, lr=3e-4"),
    *("step 100 | val_bpb 0.91 | best 0.90", "best 0.90 | val_bpb: 0.91"),
    *("val_bpb: 0.91 (best: 0.90, epoch 3)", "val_bpb: 0.91 | best val_bpb: 0.90"),
    *("baseline val_bpb: 0.95, val_bpb: 0.91", "new best val_bpb: 0.91", "val_bpb: 0.91 at step 100"),
    *("val_bpb at step 100: 0.91", "val_bpb: 0.91 (3/10)", "val_bpb: 0.91 in 12.3s"),
    "val_bpb (lower is better): 0.91",
    # decoration
    *("\x1b[32mval_bpb\x1b[0m: \x1b[1m0.91\x1b[0m", "\x1b[33mval_bpb\x1b[0m=\x1b[1;36m0.91\x1b[0m"),
    *("**val_bpb**: 0.91", "**val_bpb:** 0.91", "`val_bpb`: `0.91`", "- val_bpb: 0.91", "✅ val_bpb: 0.91"),
    *("\ufffdval_bpb: 0.91", "val_bpb ......... 0.91", "val_bpb........: 0.91", "<val_bpb>: 0.91"),
    *("Final validation bpb (val_bpb) = 0.91", "val_bpb: 910/1000 (91%)", "│ val_bpb │ 0.91 │"),
    *("| val_bpb | 0.91 |", "┃        val_bpb         ┃    0.91      ┃"),
    "step,loss,val_bpb\n1,2.0,0.95\n2,1.9,0.91",
    "epoch     train_loss  valid_loss  val_bpb  time    \n0         0.5         0.4         0.91     00:03",
    "| step | val_bpb |\n|---|---|\n| 1 | 0.95 |\n| 2 | 0.91 |",
]


@pytest.mark.parametrize("line", READ)
def test_a_metric_with_one_number_is_read_whatever_decorates_it(line: str) -> None:
    for around in ("{}", "val_bpb: 1.5\nloss 3\n{}\n", "\r 3/5\r{}\rdone\n"):
        assert score(around.replace("{}", line)) == 0.91


BARS = [
    "100%|██████| 10/10 [00:01<00:00, 9.5it/s, val_bpb={}]",
    "Epoch 0: 100%|██| 10/10 [00:01<00:00, 9it/s, v_num=0, val_bpb={}]",
    "  0%|          | 0/10 [00:00<?, ?it/s, val_bpb={}]",
    "  3%|3         | 3/100 [1:00:01<1:00:00, 9.5s/it, val_bpb={}, lr=[0.1, 0.2]]",
    "20it [00:01, 19.5it/s, val_bpb={}]",
    "val_bpb={}:  60%|###   | 3/5",
    " 60%|\x1b[32m██████    \x1b[0m| 3/5 [00:01<00:01, val_bpb={}]",
    "100%|██████████|, val_bpb={}",
    "100%|| 3/5 val_bpb={}",
]


@pytest.mark.parametrize("bar", BARS)
def test_a_bar_is_the_score_only_where_nothing_else_names_the_metric(bar: str) -> None:
    early, late = f"\r{bar.format(0.97)}", f"\r{bar.format(0.95)}"

    assert score(f"{early}{late}") == 0.95
    assert score(f"{early}\nval_bpb: 0.91\n{late}\n") == 0.91
    assert score(f"{early}\nINFO val_bpb=0.91 step=3\n{late}\n") == 0.91
    assert score(f"{early}\n---\nval_bpb: 0.91\n{late}\n") == 0.91
    assert score(f"{early}\n---\nval_bpb: 0.91\n---\n{late}\n") == 0.91
    assert score(f"{early}\nstep,val_bpb\n1,0.91\n{late}\n") == 0.91
    assert score(f"{early}\nTest val bpb: 0.91\nval_bpb: 0.5 0.6\n{late}\n") == 0.95


@pytest.mark.parametrize("bar", [bar for bar in BARS if bar.endswith("]")])
@pytest.mark.parametrize("value", ["0.95", "0.950", "nan"])
def test_text_behind_an_open_bar_is_a_line_of_its_own(bar: str, value: str) -> None:
    drawn = f"\r{bar.format(value)}"
    assert score(f"{drawn}val_bpb: 0.91") == 0.91
    assert score(f"{drawn} final val_bpb: 0.91\n{drawn}\n") == 0.91
    block = printed_in(f"{drawn}---\nval_bpb: 0.91\nepoch_s: 3\n{drawn}\nINFO val_bpb=0.8", "val_bpb")
    assert block.metrics == {"val_bpb": 0.91, "epoch_s": 3.0}
    assert printed_in(f"{drawn}val_bpb: 0.91\n", "val_bpb").plain == 0.91


BAR = " 60%|###   | 3/5 [00:01<00:01, accuracy=0.99]"
IN_DOUBT = [
    *("val_bpb: 0.91 (0.89)", "val_bpb: 0.91 0.92", "val_bpb: 0.95 -> 0.91", "val_bpb: [0.91, 0.92]"),
    *("val_bpb: 0,91", "val_bpb: 3/10", "val_bpb: 3/10 (91%)", "val_bpb: nan/10 (91%)", "val_bpb: 1.2.3"),
    *("val_bpb: 0.9-0.95", "val_bpb: 0.9 - 0.95", "val_bpb: 0.9 vs 0.95", "val_bpb: 0.9 to 0.95"),
    *("val_bpb: 2026-11-26", "val_bpb: 12:00:01", "val_bpb: 1.2M", "val_bpb: 0x1F"),
    *("val_bpb | 0.91 | 0.92 |", "val_bpb: 0.9 val_bpb: 0.8", "val_bpb         0.91      360"),
    *("val_bpb improved from 0.95 to 0.91", "val_bpb did not improve from 0.91", "val_bpb delta: 0.01"),
    *("val_bpb < 0.9", "val_bpb> 0.9", "val_bpb>0.9", "if val_bpb == 0.9:", "doneval_bpb: 0.9"),
]
OF_OTHERS = [
    *("best_val_bpb_history: 0.9", "best_val_bpb: 0.9", "val_bpb_best: 0.9", "val_bpb.json: 0.9"),
    *("val_bpb[0]: 0.9", "out/val_bpb: 0.9", "epoch=3-val_bpb=0.52.ckpt", "--val_bpb=0.9"),
    *("train.py --val_bpb 0.9", "target val_bpb 0.9", "target: val_bpb=0.9", "val_bpb 0.9 (target)"),
    *("baseline val_bpb: 0.95", "val_bpb on the baseline: 0.95", "previous val_bpb: 0.9"),
    *("args: Namespace(val_bpb=0.9, lr=0.1)", "config: {'val_bpb': 0.9}", "val_bpb: None", "val_bpb: nancy"),
    *("val_bpb information 3", "val bpb: 0.9"),
]


@pytest.mark.parametrize("line", [*IN_DOUBT, *OF_OTHERS])
def test_a_number_that_may_be_another_is_never_the_score(line: str) -> None:
    assert score(line) is None
    assert score(f"val_bpb: 0.5\n{line}\n") == 0.5
    if line in IN_DOUBT:
        reason = nearest(printed_in(f"start\n{line}\nend\n", "val_bpb"), "val_bpb", line)
        assert f"`{line}`" in reason
        assert "print the metric and one number on a line" in reason


@pytest.mark.parametrize(
    ("metric", "log", "value"),
    [
        ("accuracy", f"\r{BAR}\nTest accuracy: 0.91\n\r{BAR}\n", 0.91),
        ("accuracy", f"Train accuracy: 0.99\nTest accuracy: 0.91\n\r{BAR}\n", None),
        ("accuracy", "Test accuracy: 0.91", 0.91),
        ("accuracy", "Train accuracy: 0.99\nTest accuracy: 0.91", None),
        ("accuracy", "Train accuracy: 0.99 | Test accuracy: 0.91", None),
        ("accuracy", "Train accuracy: 0.99\naccuracy: 0.91\nTest accuracy: 0.9", 0.91),
        ("accuracy", "Best accuracy: 0.93", 0.93),
        ("accuracy", "Test set: Average loss: 0.0271, Accuracy: 9910/10000 (99%)", 0.991),
        ("accuracy", "epoch 9 | accuracy: 0.91\nBest accuracy: 0.93", 0.91),
        ("best accuracy", "epoch 9 | accuracy: 0.91\nBest accuracy: 0.93", 0.93),
        ("loss", "[train] loss: 0.5\n[val] loss: 0.4", None),
        ("loss", "step 00123 (12.3%) | loss: 2.345678 | lrm: 1.00 | dt: 300ms", 2.345678),
        ("val loss", "step 2000: train loss 1.7648, val loss 1.8857", 1.8857),
        ("val/loss", "val/loss: 0.5\nloss: 3", 0.5),
        ("loss", "val/loss: 0.5\nval-loss: 0.4\nval.loss: 0.3", None),
        ("eval/acc@1", "{'eval/acc@1': 75.0}", 75.0),
        ("acc@1", " * Acc@1 75.000 Acc@5 92.000", 75.0),
        ("acc@1", "Test: [78/78]  Time: 0.1 (0.2)  Loss:  0.5 (0.6)  Acc@1: 75.0 (74.2)", None),
        ("top-1", "top-1: 75.0", 75.0),
        ("bbox_map", "Epoch(val) [1][10] bbox_mAP: 0.3840, bbox_mAP_50: 0.5", 0.384),
        ("validation_0-rmse", "[10]\tvalidation_0-rmse:0.123", 0.123),
        ("val_bpb", "val_bpb: -0.91", -0.91),
        ("val_bpb", "val_bpb: \u22120.91", -0.91),
        ("throughput", "throughput: 1,234.5 tok/s", 1234.5),
    ],
)
def test_words_before_a_name_may_make_it_another(metric: str, log: str, value: float | None) -> None:
    assert score(log, metric) == value


def test_each_form_in_the_documentation_is_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "your-problem.md").read_text()
    lines = page.partition("Each of these says 0.91:\n\n```text\n")[2].partition("\n```")[0].split("\n")
    in_doubt = page.partition("A line in doubt is not read: ")[2].partition(".\n")[0].split("`")[1:6:2]
    assert [score(line) for line in lines] == [0.91] * 7
    assert [score(line) for line in in_doubt] == [None] * 3


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        *(
            ("accuracy: 0.9970", "accuracy: 0.9970"),
            ("lr: 0.1\nTest accuracy=0.91 (12s)", "Test accuracy=0.91"),
        ),
        *(("depth: 8\nwidth: 3", "width: 3"), ("2024-01-01 INFO Accuracy = 99.70%", "Accuracy = 99.70%")),
        *(("INFO WARNING best acc: 0.5", "best acc: 0.5"), ("info: 3", "info: 3")),
        *(("val_bpb_ema: 0.9", "val_bpb_ema: 0.9"), ("final/val_bpb: 0.91", "final/val_bpb: 0.91")),
        ("no number", None),
    ],
)
def test_the_reason_names_what_was_printed_in_the_place_of_the_metric(log: str, shown: str | None) -> None:
    words = f"; it printed `{shown}`: open a tag with that metric" if shown else ""
    assert nearest(printed_in(log, "val_bpb"), "val_bpb", log) == words


# -- evaluators


@pytest.mark.parametrize(
    ("log", "value"),
    [
        ("val_bpb: 1.5\nrows: 3\nval_bpb: 1.25\n", 1.25),
        ("step 1\rVAL_BPB:\t1e-3", 0.001),
        ("---\nval_bpb: 1.5\n---\nrows: 3", 1.5),
        ("val_bpb: 1.5\n| val_bpb: 0.3\nthe val_bpb: 0.3\nval_bpb: 0.3 and more\n", 1.5),
        ("val_bpb: " + "0" * 500 + "1\n", None),
        ("my_val_bpb: 0.3\nval_bpb = 0.3", None),
    ],
)
def test_an_evaluator_s_value_is_that_of_the_last_plain_line(log: str, value: float | None) -> None:
    assert printed_in(log, "val_bpb").plain == value


# -- any output

PIECES = st.sampled_from(
    [
        *("val_bpb", "val_bpb: 0.9", "val_bpb=0.8", "best val_bpb: 0.7", "---", "depth: 3", "0.5", "\n"),
        *("\r", " 60%|## |", "[00:01<00:02, ", "]", "[", " ", ",", "|", "\b", "\x1b[2K", "\x1b[", "\xff"),
        *("step,val_bpb", "1,0.4", "nan", "target "),
    ]
)


@given(st.lists(PIECES, max_size=30), st.lists(st.integers(0, 200), max_size=6))
def test_the_score_is_the_same_however_the_output_is_cut(pieces: list[str], cuts: list[int]) -> None:
    data = "".join(pieces).encode("utf-8")
    whole, cut = PrintedScore("val_bpb"), PrintedScore("val_bpb")

    whole.feed(data)
    begin = 0
    for end in [*sorted(cuts), len(data)]:
        cut.feed(data[begin:end])
        begin = max(begin, end)

    assert repr(answer(whole)) == repr(answer(cut))


def answer(read: PrintedScore) -> tuple[object, ...]:
    printed = read.result()
    has_score = "val_bpb" in printed.metrics
    return (
        dict(sorted(printed.metrics.items())),
        printed.plain,
        printed.block,
        None if has_score else printed.near,
    )


@given(st.binary(max_size=300), st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8))
def test_no_output_makes_it_raise(data: bytes, metric: str) -> None:
    read = PrintedScore(metric)
    read.feed(data + b"\n" + metric.encode() + data)
    assert isinstance(read.result(), Printed)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_][a-z0-9_]{0,30}", fullmatch=True), st.floats(), min_size=1, max_size=20
    ),
    st.text(),
)
def test_printed_floats_read_back_exactly_after_any_text(metrics: dict[str, float], before: str) -> None:
    block = "".join(f"{name}: {value!r}\n" for name, value in metrics.items())
    read = printed_in(f"{before}\n---\n{block}", next(iter(metrics))).metrics
    assert read.keys() == metrics.keys()
    for name, value in metrics.items():
        assert read[name] == value or (math.isnan(read[name]) and math.isnan(value))


HOSTILE = [
    *("-" * 3_000_000, "---\n" * 200_000, "\n ---x" * 500_000, " " * 3_000_000),
    *("---\nval_bpb: " + "9" * 3_000_000, "---\n" + "a: 1\n" * 200_000, "\x1b[" * 1_000_000),
    *("\n" + "\t" * 3_000_000 + "---", "val_bpb:" + " " * 3_000_000 + "1", "val_bpb " * 400_000),
    *("val_bpb: 0.9 (best\n" * 50_000, "val_bpb((\n" * 100_000, ("val_bpb" * 50 + "\n") * 2_000),
    *(("val_bpb " + "9 " * 180 + "\n") * 2_000, ("a1" * 200 + " val_bpb 3 4\n") * 2_000),
    *(("best " * 80 + "val_bpb: 3\n") * 2_000, "step,val_bpb\n" + "1,2\n" * 200_000),
    *("step,val_bpb\n" * 50_000, "val_bpb [00:01<" * 200_000, "val_bpb [00:01<[" * 200_000),
    *("val_bpb 1%|" * 200_000, "1%|" + "#" * 3_000_000 + "val_bpb"),
    "\r 60%|## | 3/5 [00:01<00:02, val_bpb=0.9]" * 20_000,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_megabytes_of_hostile_output_cost_no_more_than_their_length(hostile: str) -> None:
    begin = time.process_time()
    nearest(printed_in(hostile, "val_bpb"), "val_bpb", hostile)
    assert time.process_time() - begin < 30  # quadratic work would take hours


def test_a_score_is_read_in_more_output_than_a_log_keeps_and_behind_an_open_line_of_any_length() -> None:
    read = PrintedScore("val_bpb")
    for _ in range(1000):
        read.feed(b"." * 1000)
    assert len(read._begun) <= 16 * 1024
    read.feed(b"val_bpb: 0.91")
    for _ in range(100):
        read.feed(b"\n" + (b"loss 3.14159 " * 8 + b"\n") * 600)
    assert read.result().metrics == {"val_bpb": 0.91}
