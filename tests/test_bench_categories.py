"""Guessing the category of a change from its description."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench._categories import category_of
from functions.kernel.contract import CATEGORIES


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("depth 8 to 10, same dim", "architecture"),
        ("ASPECT_RATIO 64->72", "architecture"),
        ("Muon beta2 0.95 to 0.9", "optimizer"),
        ("gradient clipping max_norm=1.0", "optimizer"),
        ("matrix_lr 0.04->0.03 (weight decay as before)", "hyperparams"),
        ("halve TOTAL_BATCH_SIZE", "hyperparams"),
        ("replace ReLU^2 with SiLU activation", "activation"),
        ("HEAD_DIM 128→64", "attention"),
        ("SSSL window pattern", "attention"),
        ("RoPE base 10K to 200K", "embedding"),
        ("weight tying (lm_head.weight=wte.weight)", "embedding"),
        ("softcap 15 to 20", "normalization"),
        ("tiny VE WD 0.001", "regularization"),
        ("label smoothing 0.1", "regularization"),
        ("FINAL_LR_FRAC 0.0 to 0.05", "scheduling"),
        ("cosine warmdown instead of linear", "scheduling"),
        ("init scale 0.7x", "initialization"),
        ("simpler MLP", "simplification"),
        ("no logit cap + WD 2.0", "combination"),
        ("combine exp3 and exp7", "combination"),
        ("remove value embeddings", "ablation"),
        ("agent2: warmdown 0.3 (156 steps)", "scheduling"),
        ("Hypothesis: smaller batch = more steps. Evidence: the optimizer", "hyperparams"),
        (
            "a change of everything: depth",
            "architecture",
        ),  # what comes after is asked where the rest says nothing
        ("baseline", "other"),
        ("", "other"),
    ],
)
def test_the_words_of_the_change_tell_its_category(text: str, category: str) -> None:
    assert category_of(text) == category


@given(st.text(max_size=200))
def test_every_text_has_a_category(text: str) -> None:
    assert category_of(text) in CATEGORIES
