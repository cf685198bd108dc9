"""The category of a change, guessed from its description."""

from __future__ import annotations

import re

REST = re.compile(r"\(|:|;| — | – | -- |\bwith\b|\bhypothesis\b|\bevidence\b", re.IGNORECASE)
"""Words after which a description no longer names the change, but its reason or result."""
OPENING = re.compile(
    r"^\s*(?:gpu|agent|exp|worker)[ #_-]?\d*\s*:|^\s*(?:hypothesis|bottleneck)\s*:", re.IGNORECASE
)
"""Prefix before the change, such as the agent's name."""
WORDS: tuple[tuple[str, str], ...] = (
    ("combination", r"combin\w*|stack(?:ed|ing)|(?<=\s)\+(?=\s)|plus|merge\w*|together"),
    ("simplification", r"simplif\w*|simpler|clean ?up"),
    ("ablation", r"ablat\w*|remov\w*|disabl\w*|delet\w*|without|no|turn off"),
    ("initialization", r"init\w*|zero[ -]?init\w*|c proj init"),
    (
        "scheduling",
        r"warm ?up|warm ?down|schedul\w*|cosine|cool ?down|final lr\w*|wsd|curriculum|anneal\w*|lr decay",
    ),
    ("regularization", r"weight decay|wd|drop ?out|z[ -]?loss|label smoothing|regulari\w*"),
    ("hyperparams", r"lrs?|learning rates?|batch\w*|seeds?|grad(?:ient)? accum\w*|budget"),
    ("optimizer", r"clip\w*"),
    ("normalization", r"(?:rms|layer|pre|post|qk)[ -]?norm\w*|norm|normali\w*|softcap|(?:logit|soft) cap"),
    ("embedding", r"embed\w*|unembed\w*|rope|rotary|vocab\w*|weight tying|tied?|ve|wte|lm head|value mix"),
    (
        "attention",
        r"attention|attn|heads?|head dim|headwise|windows?|kv|gqa|mqa|sliding|s+l+|xsa|flexattention",
    ),
    ("activation", r"activation|relu\W?2?|squared relu|gelu|silu|swiglu|geglu|glu|swish|tanh"),
    ("optimizer", r"muon|adamw?|beta ?[12]|momentum|eps|ema|swa|ns steps|optimi[sz]er|sgd|lion|newton\w*"),
    (
        "architecture",
        r"depth|width|wider|deeper|narrower|aspect|mlp|ffn|layers?|dim|moe|router|experts?|skip|residual|resid\w*"
        r"|lambda|x0|hidden|parallel|conv\w*|gat(?:e|ed|ing)|u[ -]net|scal(?:e|ing)",
    ),
)
"""Words of each category, in order of precedence: actions come before the things that they change."""
PATTERNS = [(category, re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z])")) for category, words in WORDS]


def category_of(text: str) -> str:
    """The first category with a word in the change, else in the whole text; else `other`."""
    whole = re.sub(r"[_\s]+", " ", OPENING.sub("", text)).lower()
    change = REST.split(whole, maxsplit=1)[0]
    for part in (change, whole):
        for category, pattern in PATTERNS:
            if pattern.search(part):
                return category
    return "other"
