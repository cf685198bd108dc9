"""Tokens: shown once, known by a digest, good for as long as they should be and no longer."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process
from state.client import Lab
from state.errors import Conflict, TooManyRequests, Unauthenticated
from state.token_values import Issued, Proof, digest_of_secret
from state.tokens import WRONG_TRIES, Tokens
from tests.conftest import http_client
from tests.labs import before_next_commit, dump, told
from tests.state.test_client import wakes


@pytest.fixture
def tokens(process: Process) -> Tokens:
    return process.tokens


@pytest.fixture
async def operator(tokens: Tokens) -> Issued:
    return await tokens.issue(name="me", role="operator", issued_by="local")


def proof_of(issued: Issued) -> Proof:
    return Proof(issued.token.id, issued.token.digest)


async def expire(process: Process, issued: Issued) -> None:
    """As if its time had come."""
    key = process.lab.keys("tokens", issued.token.id)
    await process.lab.command("HSET", key, "expires_at", repr(await process.lab.now() - 0.001))


async def test_redis_holds_nothing_of_a_secret_but_its_digest(tokens: Tokens, process: Process) -> None:
    first = await tokens.issue(name="me", role="operator", issued_by="local")
    second = await tokens.rotate(first.token, 60)
    token, proof = await tokens.recognise(second.text)
    session = await tokens.open_session(proof)
    names = [session.name, session.page, await tokens.open_ticket(proof), await tokens.open_code(proof)]

    kept = json.dumps(await dump(process.lab, without=frozenset()), default=str)

    found = re.fullmatch(r"nj_([a-z2-7]{10})_([A-Za-z0-9_-]{43})", second.text)
    assert found is not None
    assert (found[1], digest_of_secret(found[2])) == (token.id, token.digest)
    assert token.digest in kept
    for text in (first.text, second.text, *names):
        assert text[-43:] not in kept


async def test_the_first_token_is_an_operators_and_closes_the_lab_for_good(
    tokens: Tokens, process: Process
) -> None:
    async with http_client(process) as http:
        await told(http, "/register", worker_id="Wes", gpu_type="cpu", baseline_bpb=1.0)
    before = await dump(process.lab)
    for role, kind in (("viewer", "access"), ("agent", "access"), ("worker", "enroll")):
        with pytest.raises(Conflict, match="first token"):
            await tokens.issue(name="x", role=role, kind=kind, issued_by="local")  # type: ignore[arg-type]
    assert await dump(process.lab) == before
    assert not await tokens.are_configured()

    me = await Tokens(process.lab).issue(name="me", role="operator", issued_by="local")

    assert [(t.name, t.role) for t in await tokens.all()] == [("Wes", "worker"), ("me", "operator")]
    assert float(await process.lab.command("GET", process.lab.keys("closed"))) == me.token.created_at
    await tokens.revoke(me.token)
    assert await Tokens(process.lab).are_configured()
    assert (await tokens.issue(name="w", role="worker", issued_by="local")).token.role == "worker"


async def test_what_opens_nothing_says_why_and_what_is_no_token_is_an_unknown_one(
    tokens: Tokens, process: Process, operator: Issued
) -> None:
    late = await tokens.issue(name="late", role="viewer", lasts_s=60, issued_by="me")
    wrong_secret = operator.text[:-1] + ("A" if operator.text[-1] != "A" else "B")
    for text in ("", "nj_aaaaaaaaaa_" + "A" * 42, "x" * 10_000, "nj_\0", wrong_secret):
        with pytest.raises(Unauthenticated, match="no token of this lab"):
            await tokens.recognise(text)
    await tokens.revoke(operator.token)
    await expire(process, late)

    with pytest.raises(Unauthenticated, match="revoked"):
        await tokens.recognise(operator.text)
    with pytest.raises(Unauthenticated, match="expired"):
        await tokens.recognise(late.text)
    with pytest.raises(Conflict, match="has expired") as refusal:
        await tokens.rotate(late.token, 60)
    assert "issue another, once it is revoked" in str(refusal.value.hint)


async def test_whatever_is_wrong_with_a_token_is_found_out_on_the_same_way(
    tokens: Tokens, process: Process, operator: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = await tokens.rotate(operator.token, 60)
    ended = await tokens.issue(name="ended", role="viewer", issued_by="me")
    await tokens.revoke(ended.token)
    compared: list[tuple[str, str]] = []
    asked: list[list[str]] = []
    compare, pipeline = hmac.compare_digest, Lab.pipeline

    def comparing(a: str, b: str) -> bool:
        compared.append((a, b))
        return compare(a, b)

    async def piped(lab: Lab, commands: Any) -> Any:
        asked.append([command[0] for command in commands])
        return await pipeline(lab, commands)

    monkeypatch.setattr("state.token_values.hmac.compare_digest", comparing)
    monkeypatch.setattr(Lab, "pipeline", piped)
    last = "A" if rotated.text[-1] != "A" else "B"
    texts = {
        "right": rotated.text,
        "before": operator.text,
        "wrong at the end": rotated.text[:-1] + last,
        "wrong at once": rotated.text[:14] + last + rotated.text[15:],
        "unknown": "nj_aaaaaaaaaa_" + rotated.text[-43:],
        "revoked": ended.text,
        "no token": "hello",
        "empty": "",
    }

    ways = {}
    for name, text in texts.items():
        compared.clear()
        asked.clear()
        with contextlib.suppress(Unauthenticated):
            await tokens.recognise(text)
        ways[name] = (len(compared), [*asked], {len(side) for pair in compared for side in pair})

    assert set(map(str, ways.values())) == {str((2, [["HGETALL", "TIME"]], {64}))}, ways


async def test_both_secrets_open_the_lab_while_they_overlap(
    tokens: Tokens, process: Process, operator: Issued
) -> None:
    rotated = await tokens.rotate(operator.token, 60)
    for text in (operator.text, rotated.text):
        assert (await tokens.recognise(text))[0].name == "me"

    key = process.lab.keys("tokens", operator.token.id)
    await process.lab.command("HSET", key, "old_until", repr(await process.lab.now()))

    with pytest.raises(Unauthenticated):
        await tokens.recognise(operator.text)
    assert (await tokens.recognise(rotated.text))[0].name == "me"


async def test_a_rotation_without_overlap_ends_the_secret_and_its_sessions_at_once(
    tokens: Tokens, operator: Issued
) -> None:
    _, proof = await tokens.recognise(operator.text)
    session = (await tokens.open_session(proof)).name

    rotated = await tokens.rotate(operator.token, 0)

    with pytest.raises(Unauthenticated):
        await tokens.recognise(operator.text)
    with pytest.raises(Unauthenticated):
        await tokens.session(session)
    assert await tokens.holding([proof]) == set()
    assert (await tokens.recognise(rotated.text))[0].name == "me"


async def test_a_session_and_its_tickets_end_with_it_or_its_token(tokens: Tokens, operator: Issued) -> None:
    first, second = [(await tokens.open_session(proof_of(operator))).name for _ in "12"]
    (token, closing), (_, lasting) = await tokens.session(first), await tokens.session(second)
    used, late = [await tokens.open_ticket(closing) for _ in "12"]
    _, streaming = await tokens.ticket(used)
    proofs = [proof_of(operator), closing, lasting, streaming]
    assert (token.name, await tokens.holding(proofs)) == ("me", set(proofs))

    await tokens.close_session(first)

    assert await tokens.holding(proofs) == {proof_of(operator), lasting}
    for ended in (tokens.session(first), tokens.ticket(late)):
        with pytest.raises(Unauthenticated, match="session has ended"):
            await ended

    await tokens.revoke(operator.token)

    assert await tokens.holding(proofs) == set()
    with pytest.raises(Unauthenticated, match="revoked"):
        await tokens.session(second)


async def test_a_ticket_opens_once_and_within_30_s(
    tokens: Tokens, process: Process, operator: Issued
) -> None:
    ticket = await tokens.open_ticket(proof_of(operator))
    assert 0 < await process.lab.command("TTL", process.lab.keys("tickets", digest_of_secret(ticket))) <= 30
    asked = await asyncio.gather(*(tokens.ticket(ticket) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(a, Unauthenticated) for a in asked) == 19


async def test_an_enroll_token_makes_a_token_a_use_and_an_ended_one_none(
    tokens: Tokens, operator: Issued, process: Process
) -> None:
    enrolling, expired, revoked = [
        await tokens.issue(name=name, role="worker", kind="enroll", uses=3, lasts_s=60, issued_by="me")
        for name in ("swarm", "expired", "revoked")
    ]
    await expire(process, expired)
    await tokens.revoke(revoked.token)
    async with process.lab.apart() as apart:
        await apart.now()  # it is connected
        doors = [tokens, Tokens(apart)]  # two processes

        asked = [doors[n % 2].enroll(enrolling.token, f"w{n}") for n in range(20)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    joined = [a for a in answers if isinstance(a, Issued)]
    assert len(joined) == 3
    assert {(a.token.role, a.token.enrolled_with) for a in joined} == {("worker", enrolling.token.id)}
    assert (await tokens.get(enrolling.token.id)).uses_left == 0
    assert sum(isinstance(a, Unauthenticated) for a in answers) == 17
    for ended in (expired, revoked, operator):
        with pytest.raises(Unauthenticated):
            await tokens.enroll(ended.token, "w")


async def test_a_wrong_try_that_another_process_takes_just_before_counts(
    tokens: Tokens, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(WRONG_TRIES - 1):
        await tokens.take_try("192.0.2.1")
    async with process.lab.apart() as apart:
        before_next_commit(monkeypatch, lambda: Tokens(apart).take_try("192.0.2.1"))

        with pytest.raises(TooManyRequests):
            await tokens.take_try("192.0.2.1")


async def test_nobody_enrolls_under_a_name_that_is_mistaken_for_another(
    tokens: Tokens, operator: Issued
) -> None:
    enrolling = await tokens.issue(name="swarm", role="worker", kind="enroll", uses=9, issued_by="me")
    joined = await tokens.enroll(enrolling.token, "w")

    for name in ("local", "keeper", "Keeper", "ME", "W"):
        with pytest.raises(Conflict):
            await tokens.issue(name=name, role="agent", issued_by="me")
        with pytest.raises(Conflict):
            await tokens.enroll(enrolling.token, name)
    for name in ("w", "me"):
        with pytest.raises(Conflict, match="taken"):
            await tokens.enroll(enrolling.token, name)
    await tokens.revoke(joined.token)
    with pytest.raises(Conflict, match="taken"):
        await tokens.enroll(enrolling.token, "w")

    assert (await tokens.get(enrolling.token.id)).uses_left == 8


async def test_a_token_asks_as_often_as_it_may_of_all_processes_together(
    tokens: Tokens, operator: Issued, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.tokens.BURST_S", 500.0)
    other, proof = Tokens(process.lab), proof_of(operator)
    for each in (tokens, other, tokens, other, tokens):
        await each.take(proof, per_s=0.01)

    for each in (tokens, other):
        with pytest.raises(TooManyRequests) as refusal:
            await each.take(proof, per_s=0.01)

        assert 90 < (refusal.value.retry_after or 0) <= 100
    await tokens.take(Proof("another", ""), per_s=0.01)


async def refused(tokens: Tokens, text: str) -> None:
    """Wait until the token opens nothing any more."""
    async with asyncio.timeout(30):
        while True:
            try:
                await tokens.admit(text)
            except Unauthenticated:
                return
            await asyncio.sleep(0.01)


async def test_a_token_is_let_in_for_a_second_without_a_look_at_redis(
    tokens: Tokens, process: Process, operator: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tokens.admit(operator.text)
    with monkeypatch.context() as patch:
        patch.delattr(Lab, "pipeline")  # what looks would fail
        patch.setattr("state.tokens.REMEMBERED_S", 3600)
        assert (await tokens.admit(operator.text))[0].name == "me"

    await process.lab.command("HSET", process.lab.keys("tokens", operator.token.id), "revoked_at", "1.0")

    await refused(tokens, operator.text)


async def test_what_another_process_issues_and_revokes_is_heard(
    tokens: Tokens, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.tokens.REMEMBERED_S", 3600)
    assert await wakes(process.wakeups, process.lab)
    assert not await tokens.are_configured()
    issued = await Tokens(process.lab).issue(name="me", role="operator", issued_by="local")
    async with asyncio.timeout(30):
        while not await tokens.are_configured():  # noqa: ASYNC110 (the wake-up sets no event of ours)
            await asyncio.sleep(0.01)
    await tokens.admit(issued.text)

    await Tokens(process.lab).revoke(issued.token)

    await refused(tokens, issued.text)


async def test_every_change_of_a_token_is_told_without_a_secret(tokens: Tokens, process: Process) -> None:
    issued = await tokens.issue(name="me", role="operator", issued_by="local")
    rotated = await tokens.rotate(issued.token, 60)
    ended = await asyncio.gather(*(tokens.revoke(rotated.token) for _ in range(2)))
    assert ended[0] == ended[1] == await tokens.get(rotated.token.id)

    told = [e for e in await process.stream.after("0", 100) if e.type.startswith("token.")]

    assert [e.type for e in told] == ["token.issued", "token.rotated", "token.revoked"]
    assert {e.subject for e in told} == {"me"}
    assert {tuple(sorted(e.data)) for e in told} <= {
        ("kind", "name", "role", "token_id"),
        ("name", "role", "token_id"),
    }
