"""The patterns of every id that crosses a door, and digests that serve as ids: of requests and of patches."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from state.errors import Invalid

TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"
Tag = Annotated[
    str,
    StringConstraints(pattern=TAG_PATTERN),
    Field(description="the tag: a line of research", examples=["mar11"]),
]
"""A research tag, at most 40 characters."""

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
"""Any other id, at most 96 characters."""

ExperimentId = Annotated[Id, Field(description="the experiment", examples=["mar11-47"])]
"""`<tag>-<number>`; a retest's is `<experiment>.<n>`."""

TraceId = Annotated[Id, Field(description="the trace: a branch of the experiments", examples=["mar11-t3"])]
SelectionId = Annotated[Id, Field(description="what trace::select answered", examples=["mar11-s12"])]

RESERVED = frozenset(
    {*("operator", "local", "visitor", "anyone"), *("lab", "system", "keeper", "direct", "clock", "nightjar")}
)
"""The lab's own names, in lower case. No token, worker or agent has one in any case."""


def _free(name: str) -> str:
    if name.lower() in RESERVED:
        raise ValueError("is Nightjar's own: take another name")
    return name


AgentName = Annotated[
    Id,
    AfterValidator(_free),
    Field(description="who works on it: any name that the agent goes by", examples=["agent-1"]),
]

GpuId = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,95}$"),
    Field(description="the GPU or CPU slot", examples=["node1:GPU-5a1b"]),
]
"""A GPU or CPU slot: `<host>:<uuid>` or `<host>:cpu<n>`."""

StreamId = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{1,19}-[0-9]{1,19}$"), Field(examples=["1767225600000-0"])
]
"""An entry of a stream, `<milliseconds>-<n>`, each within Redis' 64 bits."""

Moment = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{1,19}(-[0-9]{1,19})?$"), Field(examples=["1767225600000"])
]
"""A place in a stream: an entry, or milliseconds since 1970."""

Sha = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
    Field(description="the commit", examples=["4f9a1c2"]),
]
"""A commit as its author names it: normally a git hash of 7 to 40 hexadecimal digits."""

HASH_PATTERN = r"^[0-9a-fA-F]{7,40}$"


def _hash(text: str) -> str:
    if not re.match(HASH_PATTERN, text):
        raise ValueError(
            "is no hash of a commit, 7 to 40 hexadecimal digits: send what `git rev-parse HEAD` prints, since a name"
            " such as HEAD, a branch or a tag may be another commit in the worker's clone"
        )
    return text


CommitHash = Annotated[
    str,
    AfterValidator(_hash),
    Field(
        description="the hash of the commit",
        examples=["4f9a1c2"],
        json_schema_extra={"pattern": HASH_PATTERN},
    ),
]
"""A commit that a worker is to check out."""

OWN_LINE = 0
"""Number of the trace that grows in single mode: the tag's own line."""


def trace_id_of(tag: str, number: int) -> str:
    """A trace's id: `mar11-t3`."""
    return f"{tag}-t{number}"


def number_of(experiment_id: str) -> int:
    """The number of an experiment in its tag: 47 of `mar11-47`."""
    return int(experiment_id.rpartition("-")[2])


def named_by(experiment_id: str) -> tuple[str, str]:
    """The experiment that a retest's id names (itself where it is none), and the tag.

    `mar11-47.2` is the second run of `mar11-47` of `mar11`.
    """
    tag, dash, number = experiment_id.rpartition("-")
    return f"{tag}{dash}{number.partition('.')[0]}", tag


KEY_IDS = {"operator": "labsownkey", "worker": "labsworker"}
"""What stands in the place of a token's id in the lab's own keys, by role."""
TOKEN_FORM = re.compile(r"nj_(?P<id>[a-z2-7]{10})_(?P<secret>[A-Za-z0-9_-]{43})")


def token_id_in(text: str) -> str | None:
    """The id of the token that this text would be; None where it has not the form of one."""
    found = TOKEN_FORM.fullmatch(text)
    return None if found is None else found["id"]


REQUEST_TTL_S = 24 * 3600


@dataclass(frozen=True)
class RequestKey:
    name: str
    """Digest of the function and of the caller's id; safe in a Redis key."""
    body_digest: str

    @classmethod
    def of(cls, function: str, given: str, request: BaseModel) -> RequestKey:
        """The key of a request that its caller gave this id."""
        return cls(hashlib.sha256(f"{function}|{given}".encode()).hexdigest(), digest_of(request))

    def registered(self, stored: str) -> str:
        """The id in `<id> <digest of its body>`. Raises Invalid: the body was another."""
        first, _, digest = stored.partition(" ")
        if digest != self.body_digest:
            raise Invalid(
                "this request id or Idempotency-Key was used with another body",
                hint="use a new key for a new request",
            )
        return first


def patch_id(patch: bytes | None) -> str | None:
    """The name that a patch is stored by."""
    return None if patch is None else hashlib.sha256(patch).hexdigest()


def digest_of(request: BaseModel) -> str:
    """SHA-256 of a request, without its `request_id`."""
    return hashlib.sha256(request.model_dump_json(exclude={"request_id"}).encode()).hexdigest()
