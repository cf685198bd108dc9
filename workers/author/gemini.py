"""Google's Gemini models, through their SDK: the form is a function that the model has to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx2

from functions.pi.rules.authoring import UsedTokens, counted
from workers.author.provider import MOST_WRITTEN, Filled, FormRequest, Garbled, ModelRefused, Reply, failure

if TYPE_CHECKING:
    from google.genai.types import GenerateContentResponse

REFUSED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
        "MODEL_ARMOR",
    }
)
"""Finish reasons that refuse the task or the reply."""
_TAKEN = frozenset(
    {
        "type",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "enum",
        "anyOf",
    }
)
"""Keywords of JSON Schema that the API supports."""


class Gemini:
    name = "gemini"

    def __init__(self, key: str, model: str, http: httpx2.AsyncClient) -> None:
        from google import genai
        from google.genai import types

        self.model = model
        self._types = types
        options = types.HttpOptions(httpx_async_client=http)
        # referenced here, because the client closes its connections when it is collected
        self._client = genai.Client(api_key=key, enterprise=False, http_options=options)
        self._models = self._client.aio.models

    async def ask(self, request: FormRequest) -> Reply:
        types = self._types
        declared = types.FunctionDeclaration(
            name=request.form, description=request.about, parameters_json_schema=taken(request.schema)
        )
        calling = types.FunctionCallingConfig(
            mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=[request.form]
        )
        config = types.GenerateContentConfig(
            system_instruction=request.system,
            tools=[types.Tool(function_declarations=[declared])],
            tool_config=types.ToolConfig(function_calling_config=calling),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            max_output_tokens=MOST_WRITTEN,
        )
        try:
            response = await self._models.generate_content(
                model=self.model, contents=request.prompt, config=config
            )
            return _read(response, request.form)
        except Exception as problem:  # noqa: BLE001  # SDKs raise all kinds of errors for broken replies
            return failure(problem)


def taken(schema: Any) -> Any:
    """The schema without unsupported keywords."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: taken(field) for name, field in value.items()}
        elif key == "anyOf":
            found[key] = [taken(each) for each in value]
        elif key in _TAKEN:
            found[key] = taken(value)
    return found


def _read(response: GenerateContentResponse, form: str) -> Reply:
    used = _used(response)
    feedback = response.prompt_feedback
    if feedback is not None and feedback.block_reason is not None:
        return ModelRefused(f"the prompt is blocked: {feedback.block_reason.value}", used)
    if not response.candidates:
        return Garbled("it holds no candidate", used)
    first = response.candidates[0]
    reason = None if first.finish_reason is None else first.finish_reason.value
    if reason in REFUSED:
        return ModelRefused(f"stopped: {reason}", used)
    if reason == "MAX_TOKENS":
        return Garbled("it is cut off: it was longer than a reply may be", used)
    for part in (first.content.parts or []) if first.content else []:
        if part.function_call is not None and part.function_call.name == form:
            return Filled(part.function_call.args, used)
    return Garbled(f"it does not call the function {form} ({reason})", used)


def _used(response: GenerateContentResponse) -> UsedTokens | None:
    usage = response.usage_metadata
    if usage is None:
        return None
    read = counted(usage.prompt_token_count)
    if read is None:
        return None
    cached, said, thought = (
        counted(n) or 0
        for n in (usage.cached_content_token_count, usage.candidates_token_count, usage.thoughts_token_count)
    )
    return UsedTokens(max(0, read - cached), said + thought, cached)
