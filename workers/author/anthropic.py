"""Anthropic's models, through their SDK: the form is a tool that the model has to call."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httpx2

from functions.pi.rules.authoring import UsedTokens, counted
from workers.author.provider import (
    MOST_WRITTEN,
    Filled,
    FormRequest,
    Garbled,
    ModelRefused,
    ProviderFailed,
    Reply,
    failure,
)

if TYPE_CHECKING:
    from anthropic.types import Message

log = logging.getLogger(__name__)


class Anthropic:
    """One of Anthropic's models.

    Forcing a tool needs thinking to be disabled. Models that always think refuse that with status 400. They are told
    to call the tool instead.
    """

    name = "anthropic"

    def __init__(self, key: str, model: str, http: httpx2.AsyncClient) -> None:
        from anthropic import AsyncAnthropic

        self.model = model
        client = AsyncAnthropic(api_key=key, http_client=http, timeout=http.timeout, max_retries=0)
        self._messages = client.messages  # the SDK imports the module here
        self._forces = True

    async def ask(self, request: FormRequest) -> Reply:
        if not self._forces:
            return await self._send(request, _chosen())
        reply = await self._send(request, _forced(request))
        if not isinstance(reply, ProviderFailed) or reply.status != 400:
            return reply
        other = await self._send(request, _chosen())
        if isinstance(other, ProviderFailed) and other.status == 400:
            return reply  # the provider refuses the request for another reason
        log.info("%s cannot be forced to call a tool: it is told to call it from now on", self.model)
        self._forces = False
        return other

    async def _send(self, request: FormRequest, choice: dict[str, Any]) -> Reply:
        try:
            message = await self._messages.create(
                model=self.model,
                max_tokens=MOST_WRITTEN,
                # the tools come first, so this marks both for the cache
                system=[{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}],
                messages=[{"role": "user", "content": request.prompt}],
                tools=[
                    {"name": request.form, "description": request.about, "input_schema": dict(request.schema)}
                ],
                **choice,
            )
            return _read(message, request.form)
        except Exception as problem:  # noqa: BLE001  # SDKs raise all kinds of errors for broken replies
            return failure(problem)


def _forced(request: FormRequest) -> dict[str, Any]:
    choice = {"type": "tool", "name": request.form, "disable_parallel_tool_use": True}
    return {"tool_choice": choice, "thinking": {"type": "disabled"}}


def _chosen() -> dict[str, Any]:
    return {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}


def _read(message: Message, form: str) -> Reply:
    """The reply; the SDK does not validate its content."""
    used = _used(message)
    if message.stop_reason == "refusal":
        details = message.stop_details
        return ModelRefused(str(details.explanation or details.category) if details else "refused", used)
    if message.stop_reason == "max_tokens":
        return Garbled("it is cut off: it was longer than a reply may be", used)
    for block in message.content:
        if block.type == "tool_use" and block.name == form:
            return Filled(block.input, used)
    return Garbled(f"it does not call the tool {form}", used)


def _used(message: Message) -> UsedTokens | None:
    usage = message.usage
    read, written = counted(usage.input_tokens), counted(usage.output_tokens)
    if read is None or written is None:
        return None
    cached, cache_written = (
        counted(n) or 0 for n in (usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    )
    return UsedTokens(read, written, cached, cache_written)
