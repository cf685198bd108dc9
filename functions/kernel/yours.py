"""What a file of your own imports: `from nightjar import function, Http, On, ...`."""

# ruff: noqa: F401

from functions.branches.rules.schedulers import (
    ForestView,
    Parameter,
    Ranked,
    TraceScheduler,
    TraceView,
    drawn,
)
from functions.kernel.contract import (
    Call,
    Command,
    Cron,
    Every,
    Http,
    On,
    Picture,
    Request,
    Response,
    Text,
    function,
)
from functions.swarm.rules.proposals import ConfigProposal, ConfigSampler, Observation, drawn_proposal
from functions.swarm.rules.shapes import Shape
from state.errors import Conflict, Invalid, NotFound
from state.own import Own
from state.records import Dimension
