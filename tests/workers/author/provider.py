"""A local HTTP server that speaks the wire formats of the providers, by a script: one answer for each request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from functions.kernel.process.running import ended

KEY = "sk-test-0123456789abcdef"
READ, CACHED, WRITTEN = 100, 40, 20
"""Tokens that each reply claims: read without a cache, read from it, written."""


@dataclass(frozen=True)
class Answer:
    """What is sent for a request."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Silence:
    """The request is read, and never answered."""


class Drip:
    """A reply of which a byte comes now and then, without an end."""


class Flood:
    """A reply that goes on for as long as it is read."""


class Hangup:
    """The connection is closed in the middle of the reply."""


Act = Answer | Silence | Drip | Flood | Hangup


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    at: float
    """By the event loop's clock."""

    @property
    def body(self) -> Any:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])


class Stage:
    """The server: it plays the acts one after another, and the last one for ever."""

    def __init__(self, *acts: Act) -> None:
        self._acts = list(acts)
        self.received: list[Received] = []
        self.reached = asyncio.Event()
        """Set once a request has come."""
        self.url = ""
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._serve(reader, writer)
            except ConnectionError:
                pass  # the client has heard enough
            finally:
                writer.close()

        self._server = server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in connections:
                await ended(task)

    async def close(self) -> None:
        """Take no connection any more."""
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        act = self._acts[min(len(self.received), len(self._acts) - 1)]
        at = asyncio.get_running_loop().time()
        self.received.append(Received(first.split(" ")[1], headers, head + body, at))
        self.reached.set()
        await _play(act, writer)


async def _play(act: Act, writer: asyncio.StreamWriter) -> None:
    begun = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    match act:
        case Answer():
            length = str(len(act.body))
            headers = {"content-type": "application/json", "content-length": length, **act.headers}
            shown = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"HTTP/1.1 {act.status} Told\r\n{shown}connection: close\r\n\r\n"
            writer.write(head.encode() + act.body)
            await writer.drain()
        case Silence():
            await asyncio.Event().wait()
        case Drip():
            writer.write(begun)
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        case Flood():
            writer.write(begun)
            while True:
                writer.write(b" " * 65536)
                await writer.drain()
        case Hangup():
            writer.write(begun.replace(b"connection", b"content-length: 1000\r\nconnection") + b'{"id": ')
            await writer.drain()


def _json(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(json.dumps(body).encode(), status, headers or {})


class AnthropicDialect:
    """How one provider writes. The others have the same methods."""

    name, base_url, key_header = "anthropic", "ANTHROPIC_BASE_URL", "authorization"
    other_keys = ("x-api-key", "x-goog-api-key")
    """Headers that another provider's key would be in."""

    def at(self, url: str) -> str:
        """The API's base URL, where the server has this one."""
        return url

    def _message(self, content: list[Any], stop_reason: str, **more: Any) -> Answer:
        read = {"input_tokens": READ, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0}
        usage = {**read, "output_tokens": WRITTEN}
        said = {"content": content, "stop_reason": stop_reason, "usage": usage, **more}
        return _json({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", **said})

    def filled(self, form: str, fields: Mapping[str, Any]) -> Answer:
        """The model fills in the form."""
        return self._message(
            [{"type": "tool_use", "id": "toolu_1", "name": form, "input": fields}], "tool_use"
        )

    def prose(self, text: str) -> Answer:
        """The model writes a text, and fills in no form."""
        return self._message([{"type": "text", "text": text}], "end_turn")

    def cut_off(self, form: str) -> Answer:
        """The model has written more than it may."""
        return self._message([{"type": "tool_use", "id": "toolu_1", "name": form, "input": {}}], "max_tokens")

    def refusal(self, explanation: str | None = None) -> Answer:
        details = {"type": "refusal", "category": "frontier_llm", "explanation": explanation}
        return self._message([], "refusal", stop_details=details)

    def error(self, status: int, text: str = "no", headers: Mapping[str, str] | None = None) -> Answer:
        return _json({"type": "error", "error": {"type": "some_error", "message": text}}, status, headers)

    def sent(self, body: Any) -> tuple[str, str, str, Any]:
        """The system text, the prompt, the forced form and its schema of a request."""
        (system,), (message,), (tool,) = body["system"], body["messages"], body["tools"]
        assert system["cache_control"] == {"type": "ephemeral"}
        assert body["tool_choice"]["type"] == "tool"
        assert body["tool_choice"]["name"] == tool["name"]
        return system["text"], message["content"], body["tool_choice"]["name"], tool["input_schema"]


class OpenAIDialect:
    name, base_url, key_header = "openai", "OPENAI_BASE_URL", "authorization"
    other_keys = ("x-api-key", "x-goog-api-key")

    def at(self, url: str) -> str:
        return f"{url}/v1"

    def _response(self, output: list[Any], status: str = "completed", **more: Any) -> Answer:
        usage = {
            "input_tokens": READ + CACHED,
            "input_tokens_details": {"cached_tokens": CACHED, "cache_write_tokens": 0},
            "output_tokens": WRITTEN,
        }
        said = {"output": output, "status": status, "incomplete_details": None, "usage": usage, **more}
        return _json({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", **said})

    def called(self, form: str, arguments: str) -> Answer:
        """The function is called with this text."""
        call = {"type": "function_call", "call_id": "call_1", "name": form, "arguments": arguments}
        return self._response([{"type": "reasoning", "id": "rs_1", "summary": []}, call])

    def filled(self, form: str, fields: Mapping[str, Any]) -> Answer:
        return self.called(form, json.dumps(fields))

    def _said(self, part: Mapping[str, Any]) -> Answer:
        return self._response([{"type": "message", "role": "assistant", "content": [part]}])

    def prose(self, text: str) -> Answer:
        return self._said({"type": "output_text", "text": text, "annotations": []})

    def cut_off(self, form: str) -> Answer:
        return self._response([], "incomplete", incomplete_details={"reason": "max_output_tokens"})

    def refusal(self) -> Answer:
        return self._said({"type": "refusal", "refusal": "I can't help with that."})

    def filtered(self) -> Answer:
        """A filter has stopped the reply."""
        return self._response([], "incomplete", incomplete_details={"reason": "content_filter"})

    def error(self, status: int, text: str = "no", headers: Mapping[str, str] | None = None) -> Answer:
        return _json({"error": {"message": text, "type": "some_error", "code": None}}, status, headers)

    def flagged(self) -> Answer:
        """The prompt is refused before a model sees it."""
        return _json({"error": {"message": "flagged", "code": "invalid_prompt"}}, 400)

    def sent(self, body: Any) -> tuple[str, str, str, Any]:
        (tool,) = body["tools"]
        assert body["tool_choice"] == {"type": "function", "name": tool["name"]}
        assert body["store"] is False
        return body["instructions"], body["input"], body["tool_choice"]["name"], tool["parameters"]


class GeminiDialect:
    name, base_url, key_header = "gemini", "GOOGLE_GEMINI_BASE_URL", "x-goog-api-key"
    other_keys = ("x-api-key", "authorization")

    def at(self, url: str) -> str:
        return url

    def _content(self, parts: list[Any], finish_reason: str = "STOP") -> Answer:
        usage = {
            "promptTokenCount": READ + CACHED,
            "cachedContentTokenCount": CACHED,
            "candidatesTokenCount": WRITTEN - 5,
            "thoughtsTokenCount": 5,
            "totalTokenCount": READ + CACHED + WRITTEN,
        }
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish_reason, "index": 0}
        return _json({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"})

    def filled(self, form: str, fields: Mapping[str, Any]) -> Answer:
        return self._content([{"functionCall": {"name": form, "args": fields}}])

    def prose(self, text: str) -> Answer:
        return self._content([{"text": text}])

    def cut_off(self, form: str) -> Answer:
        return self._content([], "MAX_TOKENS")

    def refusal(self) -> Answer:
        return self._content([], "SAFETY")

    def blocked(self) -> Answer:
        """The prompt is refused before a model sees it."""
        usage = {"promptTokenCount": READ + CACHED, "totalTokenCount": READ + CACHED}
        return _json({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage})

    def error(self, status: int, text: str = "no", headers: Mapping[str, str] | None = None) -> Answer:
        return _json({"error": {"code": status, "message": text, "status": "SOME_STATUS"}}, status, headers)

    def sent(self, body: Any) -> tuple[str, str, str, Any]:
        ((system,), (content,)) = body["systemInstruction"]["parts"], body["contents"]
        ((declared,),) = (tool["functionDeclarations"] for tool in body["tools"])
        calling = body["toolConfig"]["functionCallingConfig"]
        assert calling["mode"] == "ANY"
        (forced,) = calling["allowedFunctionNames"]
        return system["text"], content["parts"][0]["text"], forced, declared["parameters_json_schema"]


Dialect = AnthropicDialect | OpenAIDialect | GeminiDialect
DIALECTS: tuple[Dialect, ...] = (AnthropicDialect(), OpenAIDialect(), GeminiDialect())
