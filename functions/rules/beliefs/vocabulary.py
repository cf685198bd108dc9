"""The words of claims about hyperparameters, by what they say; they are compared by their stems."""

from __future__ import annotations

from typing import Final

UP: Final = (
    "higher high highest larger large largest bigger big greater more most increase raise rise rose grow longer long"
    " above over beyond past exceed excessive much many least add double twice"
)
"""Directions of a cause or an outcome; `least` as in "at least"."""
DOWN: Final = (
    "lower low lowest smaller small smallest less fewer few decrease reduce reduction drop fall fell shrink decline"
    " shorter short below under cut halve half little"
)
GOOD: Final = (
    "better improve improvement help helpful win beat outperform useful beneficial benefit good superior best"
    " faster fast quick quicker speed gain"
)
BAD: Final = (
    "worse worst hurt harm harmful detrimental bad degrade deteriorate inferior suffer lose damage"
    " slower slow"
)
NOT: Final = (
    "not no never nothing none neither cannot useless irrelevant insufficient unnecessary hardly without unaffected"
    " independent"
)
LOW_IS_GOOD: Final = "loss error bpb perplexity bits"
METRICS: Final = f"{LOW_IS_GOOD} byte per metric result score performance accuracy outcome"
"""The objective in its many names."""
COMPARING: Final = "than beat outperform over to"
"""What stands between two things that are compared: `over` after "wins", `to` after "superior" and "inferior"."""
EFFECT: Final = (
    "matter effect affect influence depend difference relevant irrelevant impact useless useful use independent"
    " unaffected important"
)
SPEED: Final = "faster fast quick quicker speed slower slow"
ENOUGH: Final = "enough sufficient suffice insufficient"
NEED: Final = "need necessary unnecessary require"
CLAUSE: Final = "when if with as for while by in at"
"""They part what is said of one thing from what is said of another."""
EMPTY: Final = (
    "a an the is are be been was were of to on and or one ones there that this these it its from after up down"
    " so too very most than"
    " does do did has have had makes make made gives give yields yield leads lead reach reaches get gets become"
    " becomes brings bring value values setting settings dimension choice choose use uses using used here all among"
    " val validation other both at least should would will can may"
)
ABBREVIATIONS: Final = {
    "lr": "learning rate",
    "wd": "weight decay",
    "bs": "batch size",
    "dim": "dimension",
    "dims": "dimension",
    "optim": "optimizer",
    "optimiser": "optimizer",
    "layers": "layer",
    "generalisation": "generalization",
    "regularisation": "regularization",
    "optimal": "best",
    "optimum": "best",
}
CONCEPTS: Final = {
    "learning rate": "learning rate",
    "step size": "learning rate",
    "weight decay": "weight decay",
    "batch size": "batch size",
    "batch": "batch size",
    "hidden size": "width",
    "hidden layer": "width",
    "hidden dimension": "width",
    "width": "width",
    "depth": "depth",
    "layer": "depth",
    "n layer": "depth",
    "head dimension": "head dimension",
    "dropout": "dropout",
    "optimizer": "optimizer",
    "warmup": "warmup",
    "warmup step": "warmup",
    "momentum": "momentum",
}
"""Hyperparameters by what people call them; a tag's own names come on top."""
OF_CONCEPTS: Final = {
    "deep": ("depth", 1),
    "deeper": ("depth", 1),
    "deepest": ("depth", 1),
    "shallow": ("depth", -1),
    "shallower": ("depth", -1),
    "wide": ("width", 1),
    "wider": ("width", 1),
    "narrow": ("width", -1),
    "narrower": ("width", -1),
}
"""Adjectives that name a hyperparameter and a direction."""
NUMBER_WORDS: Final = {
    "two": 2.0,
    "three": 3.0,
    "four": 4.0,
    "five": 5.0,
    "six": 6.0,
    "seven": 7.0,
    "eight": 8.0,
    "nine": 9.0,
    "ten": 10.0,
    "eleven": 11.0,
    "twelve": 12.0,
}
