"""What lies between two configs, as a diff of the lines that set their constants."""

from __future__ import annotations

from collections.abc import Mapping


def between_configs(a: Mapping[str, object], b: Mapping[str, object], name_a: str, name_b: str) -> str:
    """The constants in which b differs from a; one that only one of them sets is left to train.py by the other.

    Empty where they are equal. 1 and 1.0, which train.py tells apart, differ.
    """
    lines = [
        line
        for name in {**a, **b}
        if (before := _line(a, name)) != (after := _line(b, name))
        for line in (*(f"-{text}" for text in before), *(f"+{text}" for text in after))
    ]
    return "\n".join((f"--- {name_a}", f"+++ {name_b}", *lines, "")) if lines else ""


def _line(config: Mapping[str, object], name: str) -> list[str]:
    return [f"{name} = {config[name]!r}"] if name in config else []
