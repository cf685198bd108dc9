"""What looks like a credential, by its name or by its text."""

from __future__ import annotations

import pytest

from functions.kernel.rules.credentials import is_credential


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("API_KEY", 7), ("wandb_api_key", "short"), ("WANDB_APIKEY", "short")),
        *(("AWS_ACCESS_KEY_ID", "short"), ("PRIVATE_KEY", "short"), ("DB_PASSWD", "short")),
        *(("credentials", "short"), ("SECRETS", ["short"]), ("HF_TOKEN", "short"), ("HF_TOKEN", b"short")),
        *(("TOKEN", ["short"]), ("BASIC_AUTH", ("ann", "short")), ("SERVICE", {"token": "short"})),
        *(("SERVICE", {"nested": [{"password": 1}]}), ("ENDPOINT", "postgres://ann:short@db")),
        *(("X", "sk-0123456789-abcdef"), ("X", "hf_QwErTyUiOpAsDfGhJkLzXcVb1m")),
        *(("X", "nj_aaaaaaaaaa_short"), ("X", "0123456789abcdef0123456789abcdef")),
        ("X", ("a", {"b": "AKIA0123456789ABCDEF"})),
    ],
)
def test_what_may_open_something_is_a_credential(name: str, value: object) -> None:
    assert is_credential(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("TOKENIZER", "bytes"), ("VOCAB_TOKENS", 512), ("N_TOKENS", 2**20), ("TOKENS", "bytes")),
        *(("TOKEN_DROPOUT", 0.1), ("AUTHOR", "ann"), ("KEY_DIM", 64), ("NUM_KEY_VALUE_HEADS", 8)),
        *(("SECRETARY", 1), ("WINDOW_PATTERN", "SSSL" * 12)),
        *(("MODEL", "a-model-with-a-long-name-7b-instruct"), ("WIDTHS", [64, 128]), ("HUGE", 10**40)),
        *(("CONFIG", {"lr": 0.1, "seed": 1}), ("NOTHING", None)),
    ],
)
def test_constants_of_a_model_are_none(name: str, value: object) -> None:
    assert not is_credential(name, value)
