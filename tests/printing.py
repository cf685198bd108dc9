"""What a whole log says of its metric."""

from __future__ import annotations

from functions.formats.printed_score import Printed, PrintedScore


def printed_in(text: str, metric: str) -> Printed:
    score = PrintedScore(metric)
    score.feed(text.encode("utf-8", "replace"))
    return score.result()
