"""OpenAI's models, through their SDK: the form is a function that the model has to call.

It uses the responses API, because newer models accept no functions in chat completions. The function is not
`strict`, which would forbid objects with free names, such as a hypothesis' constraint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from functions.pi.rules.authoring import UsedTokens, counted
from workers.author.provider import MOST_WRITTEN, Filled, FormRequest, Garbled, ModelRefused, Reply, failure

if TYPE_CHECKING:
    from openai.types.responses import Response


class OpenAI:
    """One of OpenAI's models, or of a server that speaks its API (OPENAI_BASE_URL)."""

    name = "openai"

    def __init__(self, key: str, model: str, http: httpx2.AsyncClient) -> None:
        from openai import AsyncOpenAI

        self.model = model
        client = AsyncOpenAI(api_key=key, http_client=http, timeout=http.timeout, max_retries=0)
        self._responses = client.responses  # the SDK imports the module here

    async def ask(self, request: FormRequest) -> Reply:
        try:
            response = await self._responses.create(
                model=self.model,
                instructions=request.system,
                input=request.prompt,
                tools=[
                    {
                        "type": "function",
                        "name": request.form,
                        "description": request.about,
                        "parameters": dict(request.schema),
                        "strict": False,
                    }
                ],
                tool_choice={"type": "function", "name": request.form},
                parallel_tool_calls=False,
                max_output_tokens=MOST_WRITTEN,
                store=False,
                # requests with the same beginning share a cache
                prompt_cache_key=f"nightjar-{request.form}",
            )
            return _read(response, request.form)
        except Exception as problem:  # noqa: BLE001  # SDKs raise all kinds of errors for broken replies
            return failure(problem)


def _read(response: Response, form: str) -> Reply:
    """The reply; the SDK does not validate its content."""
    used = _used(response)
    cut = response.incomplete_details
    if cut is not None and cut.reason == "content_filter":
        return ModelRefused("stopped by the provider's filter", used)
    if cut is not None or response.status == "incomplete":
        return Garbled("it is cut off: it was longer than a reply may be", used)
    for item in response.output:
        if item.type == "function_call" and item.name == form:
            return Filled(item.arguments, used)
        if item.type == "message":
            for part in item.content:
                if part.type == "refusal":
                    return ModelRefused(part.refusal[:300], used)
    return Garbled(f"it does not call the function {form}", used)


def _used(response: Response) -> UsedTokens | None:
    usage = response.usage
    if usage is None:
        return None
    read, written = counted(usage.input_tokens), counted(usage.output_tokens)
    if read is None or written is None:
        return None
    # other servers with the same API may leave these out
    details = getattr(usage, "input_tokens_details", None)
    cached, cache_written = (
        counted(getattr(details, name, None)) or 0 for name in ("cached_tokens", "cache_write_tokens")
    )
    return UsedTokens(max(0, read - cached - cache_written), written, cached, cache_written)
