"""Tools of a tag's evaluator: a confined predictor over pipes, and the files that the training left.

One file, standard library only (the checks of answers need numpy). The worker puts it on the path of the evaluator's
command, and of nothing else:

    import numpy as np
    from nightjar_evaluator import Predictor, check_log_probs

    with Predictor("train.py", "--predict") as ask:
        answers = np.asarray(ask(contexts, (len(contexts), 256)))
        check_log_probs(answers)

The experiment's code answers in its own process (`nightjar_predict.serve`). No code of the experiment may run in this
process: import nothing from its tree, and load no pickle. Raising `Unscored` ends the run without a score; its text
is the reason.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

Float = Literal["f", "d"]
"""Types of an answer's numbers, as `struct` names them."""
BYTES: Mapping[Float, int] = {"f": 4, "d": 8}
LONGEST_HEAD = 4096
LONGEST_TAIL = 16 * 1024
"""Bytes of the predictor's output that an error shows."""


class Unscored(Exception):
    """The experiment has no score. The evaluator's process ends with `status`, by which the worker knows the kind."""

    status: ClassVar[int] = 79


class Leak(Unscored):
    """Answers depend on what they must not know."""

    status = 80


class NotFinite(Unscored):
    """An answer holds NaN or infinity."""

    status = 81


class Late(Unscored):
    """No answer came in time."""

    status = 82


@dataclass(frozen=True)
class Place:
    """The attempt, as the worker describes it."""

    tree: Path
    """The experiment's files, as its training left them."""
    stage: socket.socket
    """Socket to the process that starts predictors (score.py)."""

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """The one value that score.py answers."""
        with _asking:
            socket.send_fds(self.stage, [json.dumps(request).encode()], [*descriptors])
            answer = self.stage.recv(LONGEST_HEAD)
        (value,) = json.loads(answer).values()
        return value


_asking = threading.Lock()
_place: Place | None = None


def begin(place: Place) -> None:
    """Set where the experiment is; called by the worker's `score.py`."""
    global _place
    _place = place


def place() -> Place:
    """Where the experiment is.

    Raises:
        RuntimeError: this process was not started by a worker.
    """
    if _place is None:
        raise RuntimeError(
            "nightjar_evaluator works where a Nightjar worker has started the evaluator's command"
        )
    return _place


def artefact(name: str, *, most_bytes: int = 1 << 30) -> bytes:
    """A file that the training left in its tree. Only data: npz without objects, safetensors, ONNX; no pickle.

    Raises:
        Unscored: it is not there, not a regular file inside the tree, or too large.
    """
    tree, inside = place().tree.resolve(), PurePosixPath(name)
    path = tree / inside
    try:
        if inside.is_absolute() or ".." in inside.parts or path.parent.resolve() != path.parent:
            raise Unscored(f"{name} is not inside the experiment's tree")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unscored(f"the training has left no file {name}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
            raise Unscored(f"{name} is not a regular file of at most {most_bytes:,} bytes")
        return file.read(most_bytes)


def measure_hidden(measure: Callable[[str, Path], float]) -> None:
    """Measure each hidden split that the lab asks for, and send its number on a pipe of its own.

    `measure` gets the split (`hidden` or `test`) and the worker's folder of hidden data. Call this after the visible
    metric is printed, with a new Predictor. Meanwhile nothing is printed, and no error is shown: what a predictor
    makes of hidden data must not come out. A run without a number is not kept. In a tag without a hidden split this
    does nothing.
    """
    pipe = os.environ.get("NIGHTJAR_HIDDEN_FD")
    if pipe is None:
        return
    folder = Path(os.environ.get("NIGHTJAR_HIDDEN_DATA", os.devnull))
    for split in os.environ["NIGHTJAR_HIDDEN_SPLITS"].split(","):
        with _silence():
            try:
                number = float(measure(split, folder))
            except (Exception, SystemExit):  # noqa: BLE001 - its text may hold what the predictor was asked
                number = math.nan
        os.write(int(pipe), f"{split} {number!r}\n".encode())


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Send standard output and error of this process nowhere."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number, _ in kept:
            os.dup2(nowhere, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)


class Predictor:
    """A process of the experiment's code that answers questions; `python *arguments` in its tree.

    It gets the environment of a training, without this process's pipes, output or files. What it prints is shown in
    errors only. Where the worker confines it, it writes nothing but its temporary files, connects to nothing, and
    reaches no other process.
    """

    def __init__(self, *arguments: str, patience_s: float = 120.0) -> None:
        """`patience_s`: longest time for one question with its answer; the first one includes loading the model."""
        self.arguments, self.patience_s = arguments, patience_s
        self._questions = self._answers = -1

    def __enter__(self) -> Predictor:
        self._stage = place()
        theirs_in, self._questions = os.pipe()
        self._answers, theirs_out = os.pipe()
        printed, output = os.pipe()
        try:
            self._number = self._stage.ask({"start": self.arguments}, (theirs_in, theirs_out, output))
        finally:
            for pipe in (theirs_in, theirs_out, output):
                os.close(pipe)
        os.set_blocking(self._questions, False)
        os.set_blocking(self._answers, False)
        self._printed = _Tail(printed)
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._questions, self._answers):
            os.close(pipe)
        is_ended = self._stage.ask({"end": self._number})
        sys.stdout.write("\n")  # unconfined it may have begun a line there, which would hide ours
        sys.stdout.flush()
        if not is_ended:
            raise Unscored("the predictor has left a process that cannot be ended")

    def __call__(self, question: Any, shape: Sequence[int]) -> memoryview[float]:
        """The answer to one question, of this shape, in 4- or 8-byte floats; numpy reads it as an array.

        The question is any C-contiguous array.

        Raises:
            Late: it took too long. Unscored: the predictor has ended, or its answer has another shape.
        """
        asked = memoryview(question)
        if not asked.c_contiguous:
            raise ValueError("a question is a C-contiguous array")
        give_up = time.monotonic() + self.patience_s
        head = json.dumps({"type": asked.format, "shape": asked.shape}).encode() + b"\n"
        self._send(memoryview(head), give_up)
        if asked.nbytes:
            self._send(asked.cast("B"), give_up)
        kind = self._head(tuple(shape), give_up)
        answer = bytearray(BYTES[kind] * math.prod(shape))
        self._fill(memoryview(answer), give_up)
        return memoryview(answer).cast(kind, tuple(shape))

    def _head(self, shape: tuple[int, ...], give_up: float) -> Float:
        """The type of an answer of this shape, from its first line."""
        line = bytearray()
        while not line.endswith(b"\n"):
            if len(line) >= LONGEST_HEAD:
                raise self._unscored("its answer does not begin with a line that says its type and shape")
            one = bytearray(1)
            self._fill(memoryview(one), give_up)
            line += one
        try:
            said: Any = json.loads(line)
            kind, given = str(said["type"]), tuple(said["shape"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._unscored(
                "its answer does not begin with a line that says its type and shape"
            ) from None
        if given == shape:
            for known in BYTES:
                if kind == known:
                    return known
        raise self._unscored(
            f"it answered with type {kind[:20]!r} and shape {str(given)[:100]}: 'f' or 'd', and {shape}"
            " were asked for"
        )

    def _send(self, data: memoryview, give_up: float) -> None:
        while data:
            self._until(self._questions, select.POLLOUT, give_up)
            try:
                data = data[os.write(self._questions, data) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._unscored(f"it has ended ({self._ended()})") from None

    def _fill(self, into: memoryview, give_up: float) -> None:
        while into:
            self._until(self._answers, select.POLLIN, give_up)
            try:
                got = os.readv(self._answers, [into])
            except BlockingIOError:
                continue
            if got == 0:
                raise self._unscored(f"it has ended ({self._ended()})")
            into = into[got:]

    def _until(self, pipe: int, event: int, give_up: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        if not poll.poll(max(0.0, give_up - time.monotonic()) * 1000):
            raise Late(self._why(f"it gave no answer within {self.patience_s:g} s"))

    def _unscored(self, reason: str) -> Unscored:
        return Unscored(self._why(reason))

    def _why(self, reason: str) -> str:
        return f"the predictor ({' '.join(self.arguments)}): {reason}{self._printed.quoted()}"

    def _ended(self) -> str:
        code = self._stage.ask({"status": self._number})
        if code is None:
            return "its pipe is closed"
        return f"by signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


class _Tail:
    """The end of a predictor's output, read at once so that the predictor never blocks."""

    def __init__(self, output: int) -> None:
        self._bytes = bytearray()
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    def quoted(self) -> str:
        """Each line with the prefix `| `, so that none can pass for one of ours."""
        self._reader.join(0.5)
        text = bytes(self._bytes).decode("utf-8", "replace")
        lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
        return "".join(f"\n| {line}" for line in lines)

    def _read(self, output: int) -> None:
        while data := os.read(output, 64 * 1024):
            self._bytes += data
            del self._bytes[:-LONGEST_TAIL]
        os.close(output)


# ---- Checks of answers -------------------------------------------------------------------------------------


def check_log_probs(answers: Any, *, tolerance: float = 1e-3) -> Any:
    """Check that the last axis holds log-probabilities in nats; answers the logarithm of each row's sum.

    Subtract it from the answers before scoring: then the tolerance cannot be exploited. The tolerance is the
    difference of a sum from 1.

    Raises:
        NotFinite: NaN or infinity. Unscored: a row does not add up to 1.
    """
    import numpy as np

    check_finite(answers)
    with np.errstate(over="ignore"):
        sums = np.exp(np.asarray(answers, dtype=np.float64)).sum(axis=-1)
    worst = float(np.abs(sums - 1).max(initial=0.0))
    if not worst <= tolerance:
        raise Unscored(
            f"the probabilities of a row add up to 1 +- {worst:.3g} (at most {tolerance:g} is let pass):"
            " answer with log-softmax outputs"
        )
    return np.log(sums)


def check_finite(answers: Any) -> None:
    """Check that an answer holds neither NaN nor infinity.

    Raises:
        NotFinite: it does.
    """
    import numpy as np

    good = np.isfinite(np.asarray(answers))
    if not good.all():
        raise NotFinite(
            f"{int((~good).sum()):,} of {good.size:,} numbers that the predictor answered are not finite"
        )


def check_causal(answers: Any, scrambled: Any, again: Any, *, tolerance: float = 1e-3) -> None:
    """Check that answers stay the same when only the future was scrambled.

    `scrambled` has the answers to the same questions with another future, and `again` the answers to a repetition of
    those. Ask for both in a fresh `Predictor`, which cannot remember the answers. The tolerance is the largest
    difference of a number: for log-probabilities use 1e-4 nats with 4-byte floats, about 2e-2 with 2-byte floats.

    Raises:
        Unscored: the two answers to one question differ, so nothing can be said. Leak: the future changes them.
    """
    import numpy as np

    def differs(one: Any, other: Any) -> tuple[int, int, float]:
        by = np.abs(np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64))
        rows = by.reshape(len(by), -1).max(axis=1, initial=0.0)
        return int((rows > tolerance).sum()), len(rows), float(rows.max(initial=0.0))

    changed, asked, most = differs(scrambled, again)
    if changed:
        raise Unscored(
            f"the same {asked:,} questions were answered differently when they were asked again ({changed:,} of them,"
            f" by up to {most:.3g}): predictions must not depend on chance; is dropout still on?"
        )
    changed, asked, most = differs(answers, scrambled)
    if changed:
        raise Leak(
            f"predictions use the future: when it was scrambled, {changed:,} of {asked:,} changed, by up to"
            f" {most:.3g} (at most {tolerance:g} is let pass)"
        )
