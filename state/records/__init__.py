"""The records: frozen values, one module for each noun."""

from state.records.base import Record, flatten, stamp, words
from state.records.experiments import (
    OPEN,
    RETESTED,
    STATUSES,
    Best,
    End,
    Experiment,
    Idea,
    Link,
    Result,
    Sketch,
    Status,
    Trial,
    Trust,
)
from state.records.gpus import Footprint, Gpu, GpuStatus
from state.records.roles import ROLES, Role
from state.records.tags import Direction, Mode, Strategy, Tag
from state.records.traces import (
    Choice,
    Forest,
    ForestRecords,
    Selection,
    SelectionKind,
    SelectionStatus,
    Trace,
    TraceStatus,
)

__all__ = [
    "OPEN",
    "RETESTED",
    "ROLES",
    "STATUSES",
    "Best",
    "Choice",
    "Direction",
    "End",
    "Experiment",
    "Footprint",
    "Forest",
    "ForestRecords",
    "Gpu",
    "GpuStatus",
    "Idea",
    "Link",
    "Mode",
    "Record",
    "Result",
    "Role",
    "Selection",
    "SelectionKind",
    "SelectionStatus",
    "Sketch",
    "Status",
    "Strategy",
    "Tag",
    "Trace",
    "TraceStatus",
    "Trial",
    "Trust",
    "flatten",
    "stamp",
    "words",
]
