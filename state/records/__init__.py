"""The records: frozen values, one module for each noun."""

from state.records.apart import ChainChange, ChangeState, Distillation, Transfer, TransferState
from state.records.base import Record, flatten, stamp, stamped, view_of, words
from state.records.certificates import Certificate, CertificatePair, CertificateState, Side
from state.records.experiments import (
    COUNTERS,
    JUDGED,
    NO_CHANGE,
    OPEN,
    RETESTED,
    STATUSES,
    AgentRun,
    Best,
    ComparedRun,
    End,
    Experiment,
    ExperimentRecord,
    FailureRecord,
    Idea,
    KeepRecord,
    Link,
    Measured,
    Mention,
    OneRun,
    Pace,
    ReferenceTime,
    Result,
    RunRow,
    RunVerdict,
    Score,
    Seeds,
    Sketch,
    Status,
    TimeSpent,
    Trust,
    VariedRow,
)
from state.records.gpus import Footprint, Gpu, GpuState, GpuStatus, Transport
from state.records.hypotheses import (
    Evidence,
    Hypothesis,
    HypothesisClaim,
    HypothesisKind,
    HypothesisSource,
    HypothesisStatus,
    Verdict,
)
from state.records.patches import EndedRun, UsedPatches
from state.records.pipelines import (
    BatchDecision,
    ConfirmedDraft,
    Draft,
    DraftState,
    Expected,
    FlushReason,
    Pipeline,
)
from state.records.roles import ROLES, Role
from state.records.swarms import (
    Dimension,
    Dtype,
    HeardWorker,
    Leader,
    Number,
    ProposalState,
    ProposedDimension,
    SwarmWorker,
    Value,
)
from state.records.tags import AgentLimit, Counters, Direction, Mode, Strategy, Tag, score
from state.records.traces import (
    Forest,
    ForestRecords,
    Selection,
    SelectionKind,
    SelectionRecord,
    SelectionStatus,
    Trace,
    TraceStatus,
)
