"""The records: frozen values. All that their modules define can be imported from here."""

from state.records.base import *
from state.records.certificates import *
from state.records.experiments import *
from state.records.gpus import *
from state.records.hypotheses import *
from state.records.swarms import *
from state.records.tags import *
from state.records.traces import *
