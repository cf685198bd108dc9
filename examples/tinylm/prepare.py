"""The read-only half of tinylm: the bytes to learn from, the clock and the score.

    python prepare.py    # by a Nightjar worker, after a training: scores what `python train.py --predict` answers

The text is the Python standard library's own source, because every machine that can run this has it already.
The score depends on that text, so compare val_bpb only between runs of one Python version.
"""

import functools
import hashlib
import os
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

VOCAB = 256  # one symbol per byte value
MAX_CONTEXT = 64  # bytes the evaluator shows before each byte it asks for
EVAL_PLACES = 2_048  # evenly spaced over the validation text; bytes are asked for at all of them, then again
EVAL_STEPS = 16  # bytes asked for at each place, one after the other
EVAL_BYTES = EVAL_PLACES * EVAL_STEPS  # validation bytes scored
EVAL_CHUNK = 2_048  # contexts shown per call: bounds memory, does not change the score
LEAK_TOLERANCE = 1e-4  # nats by which what is asked beside it may change an answer: ten times the rounding
TRAIN_CAP = 4_000_000  # bytes
VALIDATION_CAP = 500_000  # bytes
VALIDATION_SHARE = 0.1  # of the files
FILE_END = b"\0"  # a byte that Python source cannot contain

# Tests and demos differ in style from the library, and encodings and pydoc_data are generated tables.
OTHER_TEXT = {"test", "tests", "idlelib", "turtledemo", "encodings", "pydoc_data"}
# Machines with the same Python differ in these.
INSTALLED = {"__pycache__", "ensurepip", "lib-dynload", "site-packages", "dist-packages"}
SKIPPED_FOLDERS = OTHER_TEXT | INSTALLED
SKIPPED_PREFIXES = ("config-", "_sysconfigdata", "sitecustomize", "usercustomize")

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating]
LogProbs = Callable[[Bytes], Floats]


def read_budget(text: str | None, own: float) -> float:
    """CPU seconds of training: those that `text` grants, else the script's own.

    Raises ValueError unless `text` is finite and positive.
    """
    if text is None:
        return own
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"NIGHTJAR_BUDGET_S is {text!r}; set it to a positive number of CPU seconds")
    return seconds


def cpu_seconds() -> float:
    """CPU seconds this process has used, all threads together: a busy neighbour costs a run nothing."""
    return time.process_time()


def source_files(stdlib: Path) -> Iterator[str]:
    """Names, relative to `stdlib`, of the Python files that count as text; in no particular order."""
    for folder, subfolders, names in os.walk(stdlib):
        subfolders[:] = [
            n for n in subfolders if n not in SKIPPED_FOLDERS and not n.startswith(SKIPPED_PREFIXES)
        ]
        for name in names:
            path = Path(folder, name)
            if name.endswith(".py") and not name.startswith(SKIPPED_PREFIXES) and not path.is_symlink():
                yield path.relative_to(stdlib).as_posix()


def draw(name: str) -> float:
    """A fixed number in [0, 1) for a file name: a new file never moves an old one across the split."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def is_validation(name: str) -> bool:
    return draw(name) < VALIDATION_SHARE


def take(stdlib: Path, names: list[str], cap: int) -> dict[str, bytes]:
    """Files by name, in the order given, for as long as their sizes add up to at most `cap` bytes."""
    taken: dict[str, bytes] = {}
    room = cap
    for name in names:
        text = (stdlib / name).read_bytes()
        if not text:
            continue  # an empty __init__.py is the same file everywhere
        room -= len(text) + len(FILE_END)
        if room < 0:
            break
        taken[name] = text
    return taken


@functools.cache
def load_files(split: str) -> dict[str, bytes]:
    """File texts by name; `split` is "train" or "validation". No file is in both."""
    cap = {"train": TRAIN_CAP, "validation": VALIDATION_CAP}[split]
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    mine = (n for n in source_files(stdlib) if is_validation(n) == (split == "validation"))
    # sorted by the draw, the cap cuts a sample of the whole library and not its first letters
    files = take(stdlib, sorted(mine, key=draw), cap)
    if not files:
        raise FileNotFoundError(
            f"no Python sources under {str(stdlib)!r}; run with a Python that ships its library"
        )
    return files


@functools.cache
def load_text(split: str) -> Bytes:
    """One split as a single uint8 vector, every file closed by FILE_END; read-only."""
    return np.frombuffer(b"".join(text + FILE_END for text in load_files(split).values()), dtype=np.uint8)


def windows_before(text: Bytes, positions: npt.NDArray[np.int64], context: int) -> Bytes:
    """The `context` bytes before each position, oldest first: (len(positions), context)."""
    windows: Bytes = text[positions[:, None] + np.arange(-context, 0)]
    return windows


def get_batch(rng: np.random.Generator, batch_size: int, context: int) -> tuple[Bytes, Bytes]:
    """Random training contexts (batch_size, context) and the byte that follows each (batch_size,)."""
    text = load_text("train")
    positions = rng.integers(context, len(text), size=batch_size)
    return windows_before(text, positions, context), text[positions]


def evaluate_bpb(log_probs: LogProbs, text: Bytes | None = None) -> float:
    """Mean bits per byte of `text`, by default the validation text; lower is better, a uniform guess scores 8.0.

    `log_probs` maps contexts (n, MAX_CONTEXT) uint8, oldest byte first, to the next byte's log probabilities
    (n, VOCAB) in nats. It never sees the byte asked for, and may use as few of the last bytes as it likes.
    The score of a broken model is nan or inf: the caller checks. Raises ValueError if the probabilities of a
    row do not add up to one.
    """
    text = load_text("validation") if text is None else text
    positions = asked_positions(text)
    nats = 0.0
    for start in range(0, EVAL_BYTES, EVAL_CHUNK):
        asked = positions[start : start + EVAL_CHUNK]
        answers = np.asarray(log_probs(windows_before(text, asked, MAX_CONTEXT)), dtype=np.float64)
        excess = check_distributions(answers, len(asked))
        nats -= float((answers[np.arange(len(asked)), text[asked]] - excess).sum())
    return nats / EVAL_BYTES / float(np.log(2))


def asked_positions(text: Bytes) -> npt.NDArray[np.int64]:
    """Positions of the questioned bytes in the text, in the order of the questions.

    No context shows a byte that is still to be asked for: between the last byte of a place and the first of the next
    one there is room for a context.
    """
    place = (len(text) - MAX_CONTEXT) / EVAL_PLACES
    step = (place - MAX_CONTEXT) / EVAL_STEPS
    if step < 2:
        raise ValueError(
            "the text is too short: contexts would show bytes that are still to be asked for; use 200 KB or more"
        )
    steps, places = np.ogrid[:EVAL_STEPS, :EVAL_PLACES]
    positions: npt.NDArray[np.int64] = (MAX_CONTEXT + steps * step + places * place).astype(np.int64).ravel()
    return positions


def check_distributions(answers: Floats, count: int) -> Floats:
    """Refuse a score bought with probabilities that add up to more than one; nan goes through.

    The logarithm of each row's sum is answered: it is no part of the score, so nothing is gained below the tolerance.
    """
    if answers.shape != (count, VOCAB):
        raise ValueError(
            f"log_probs returned shape {answers.shape}; return {(count, VOCAB)}, a row per context"
        )
    sums: Floats = np.exp(answers).sum(axis=1)
    worst = float(np.abs(sums - 1).max())
    if worst > 1e-3:
        raise ValueError(f"probabilities of a row add up to 1 +- {worst:.3g}; return log-softmax outputs")
    excess: Floats = np.log(sums)
    return excess


def score_predictor(text: Bytes) -> float:
    """Bits per byte of the predictor that a training has left, which is asked over pipes: no code of it runs here.

    What it is shown never holds a byte that it is still asked for. That each answer depends on its own context alone
    is checked: a fresh process is asked some of the questions again, with others beside them.
    """
    from nightjar_evaluator import Predictor, check_causal, check_log_probs

    answers: list[Floats] = []

    def answer(contexts: Bytes) -> Floats:
        answers.append(np.asarray(ask(contexts, (len(contexts), VOCAB))))
        check_log_probs(answers[-1])
        return answers[-1]

    with Predictor("train.py", "--predict") as ask:
        bpb = evaluate_bpb(answer, text)
    rows = np.random.default_rng().permutation(EVAL_BYTES)[:EVAL_CHUNK]  # drawn anew for each score
    contexts = windows_before(text, asked_positions(text)[rows], MAX_CONTEXT)
    with Predictor("train.py", "--predict") as ask:
        scrambled, again = (np.asarray(ask(contexts, (len(contexts), VOCAB))) for _ in range(2))
    check_causal(np.concatenate(answers)[rows], scrambled, again, tolerance=LEAK_TOLERANCE)
    return bpb


def score_hidden(split: str, folder: Path) -> float:
    """Bits per byte of a text that no agent sees: any file of 200 KB or more, `hidden.bin` or `test.bin`."""
    return score_predictor(np.frombuffer((folder / f"{split}.bin").read_bytes(), dtype=np.uint8))


if __name__ == "__main__":
    from nightjar_evaluator import measure_hidden

    print(f"val_bpb: {score_predictor(load_text('validation')):.6f}", flush=True)
    measure_hidden(score_hidden)  # of a tag with a hidden split alone
