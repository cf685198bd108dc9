"""serve(predict) answers the questions of the tag's evaluator, in a process that it has started.

One file, standard library only; the worker puts it on the path of the experiment's code.

    import numpy as np
    from nightjar_predict import serve

    serve(lambda question: model.log_probs(np.asarray(question)))

Questions come as arrays (memoryviews with a type and a shape), answers are C-contiguous arrays of 4- or 8-byte
floats. They travel over two pipes of their own, so the script may print what it likes.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

_LONGEST_HEAD = 4096


def serve(predict: Callable[[memoryview], Any]) -> None:
    """Answer every question with `predict` of it, until there are no more."""
    questions, answers = _pipes()
    with questions, answers:
        while head := questions.readline(_LONGEST_HEAD):
            said = json.loads(head)
            shape = tuple(said["shape"])
            asked = questions.read(struct.calcsize(said["type"]) * math.prod(shape))
            answer = memoryview(
                predict(memoryview(asked).cast(said["type"], shape) if asked else memoryview(asked))
            )
            if answer.format not in ("f", "d"):
                raise TypeError(f"an answer holds 4- or 8-byte floats, not {answer.format!r}")
            answers.write(json.dumps({"type": answer.format, "shape": answer.shape}).encode() + b"\n")
            answers.write(answer)
            answers.flush()


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    try:
        reading, writing = map(int, os.environ.pop("NIGHTJAR_PREDICT_FDS").split(":"))
    except (KeyError, ValueError):
        sys.exit("nightjar_predict answers a Nightjar worker's evaluator: there is none here")
    for pipe in (reading, writing):
        os.set_inheritable(pipe, False)
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
