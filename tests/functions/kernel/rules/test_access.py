"""Roles and ownership."""

from __future__ import annotations

import pytest

from functions.kernel.rules.access import Caller, check_own, check_own_gpu, check_tags, tags_of
from state.errors import Forbidden
from state.records import ROLES, Role


@pytest.mark.parametrize("token_id", [None, "t"])
@pytest.mark.parametrize("role", ROLES)
def test_none_but_operators_may_do_all_with_or_without_a_token(role: Role, token_id: str | None) -> None:
    somebody = Caller("anyone", role, token_id)
    assert somebody.may_do_all == (role == "operator")


def test_what_a_request_names_belongs_to_the_tag_before_its_last_dash() -> None:
    named = {"tag": "a", "experiment_id": "a-b-12", "parent_ids": ["c-1", "-2"], "parent_id": "d"}
    traces = {"trace_id": "e-t1", "selection_id": "f-s1", "into": "g-t2", "sources": ["h-t3"]}
    assert tags_of(named) == {"a", "a-b", "c", ""}
    assert tags_of(traces) == {"e", "f", "g", "h"}


@pytest.mark.parametrize(
    "named", [{"tag": "mars"}, {"tag": "ma"}, {"experiment_id": "mar-x-1"}, {"parent_id": "1"}]
)
def test_a_tag_that_only_begins_alike_is_another(named: dict[str, object]) -> None:
    with pytest.raises(Forbidden):
        check_tags(Caller("a", "agent", "t", frozenset({"mar"})), named)


def test_names_are_told_apart_to_the_letter() -> None:
    ann = Caller("ann", "agent", "t")
    with pytest.raises(Forbidden):
        check_own(ann, "Ann", "x-1")
    with pytest.raises(Forbidden):
        check_own_gpu(Caller("ann", "worker", "t"), None, "g")
    check_own(ann, None, "x-1")
