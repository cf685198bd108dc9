"""What is logged meanwhile, as the JSON lines that a process would write."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from functions.kernel.process.logs import formatter


class Lines:
    """The lines so far."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def all(self, **wanted: Any) -> list[dict[str, Any]]:
        """Every line with these values."""
        lines = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in lines if wanted.items() <= line.items()]

    def one(self, **wanted: Any) -> dict[str, Any]:
        """The only line with these values."""
        found = self.all(**wanted)
        assert len(found) == 1, (wanted, self.text)
        return found[0]


@contextmanager
def logged(level: str = "DEBUG", log_format: str = "json") -> Iterator[Lines]:
    """Everything that is logged, from this level on."""
    lines = Lines()
    handler = logging.StreamHandler(lines.stream)
    handler.setFormatter(formatter(log_format, "test"))
    handler.addFilter(lambda record: record.name != "httpx")  # the test's own client
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
