"""Conversations that others had with providers, and how they are had again on a thread.

A recording holds what a client sent and what it was answered, exchange by exchange. Here each exchange is
a run of one step on the same thread: a back end gives the recorded answer over a real connection, and what
it was sent is compared with what it was sent then.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from entracte import Client, Memory
from entracte_server import Agent, ModelSettings, Tool, ToolContext
from entracte_server.models import ProviderSettings
from entracte_server.models.providers import KNOWN_PROVIDERS
from tests.models.support import Answer, FakeProvider

GO_ON = "(go on)"
"""What is said where the client said nothing new. It is left out of the comparison."""

REASONING = {
    "avian": "reasoning_content",
    "llamacpp": "reasoning_content",
    "ollama-cloud": "reasoning",
    "vercel-gateway": "reasoning_details",
    "xai": "reasoning_content",
    "zai": "reasoning_content",
}
"""In which form these take thinking back, which are not known to the server without settings."""

OUR_WAY = frozenset({"stream", "stream_options", "model", "tool_choice", "messages", "tools"})
"""Fields of a request that are not taken from the recording: answers are always streamed, with usage, and
`tool_choice` is not sent where it is `auto`."""

LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass
class Exchange:
    """A request, and the answer to it as it came."""

    request: dict[str, Any]
    answer: Answer

    @property
    def says(self) -> str:
        """What the user says in it: nothing new unless it is the last message."""
        last = self.request["messages"][-1]
        return str(last["content"]) if last["role"] == "user" else ""


class Conversation:
    """A recording. `key` is its number."""

    def __init__(self, key: str, recording: Mapping[str, Any]) -> None:
        self.key = key
        self.provider = str(recording["provider"])
        self.exchanges = [
            Exchange(
                one["request"],
                Answer(
                    [one["body"].encode("utf-8", "surrogateescape")],
                    headers={"content-type": one["headers"]["content-type"]},
                ),
            )
            for one in recording["exchanges"]
        ]

    def settings(self, url: str) -> dict[str, Any]:
        """Settings of the provider: those that are known of it, but where it is and that it asks for a key.
        A stream without a finish reason is taken as it is."""
        known = KNOWN_PROVIDERS.get(self.provider)
        values: dict[str, Any] = {"reasoning_back": REASONING.get(self.provider, "none")}
        if known is not None:
            default = ProviderSettings("any")
            values = {
                name: value
                for name, value in msgspec.structs.asdict(known).items()
                if value != getattr(default, name)
            }
        for field in LIMITS:
            if field in self.exchanges[0].request:
                values["max_tokens_field"] = field
        own = {"base_url": url, "requires_key": False, "max_retries": 0, "finish_optional": True}
        return {name: value for name, value in {**values, **own}.items() if name != "name"}

    def agent(self) -> Agent:
        """An agent with the instructions, the tools and the settings of the recording."""
        request = self.exchanges[0].request
        system = [plain(message)["content"] for message in request["messages"] if message["role"] == "system"]
        limit = next((request[field] for field in LIMITS if field in request), None)
        more = {key: value for key, value in request.items() if key not in (*OUR_WAY, *LIMITS)}
        return Agent(
            id=self.key,
            model=f"{self.key}/{request['model']}",
            instructions=system,
            tools=[self._tool(tool["function"]) for tool in request.get("tools") or []],
            model_settings=ModelSettings(max_output_tokens=limit, max_retries=0),
            provider_options={self.key: more} if more else None,
        )

    def _tool(self, function: Mapping[str, Any]) -> Tool:
        results = {
            message["tool_call_id"]: message["content"]
            for message in self.exchanges[-1].request["messages"]
            if message["role"] == "tool"
        }

        async def execute(args: Any, ctx: ToolContext) -> str:
            """The recorded result; where the provider gave no id, there is one only."""
            return results[ctx.tool_call_id] if ctx.tool_call_id in results else only(results)

        return Tool(
            name=function["name"],
            description=function.get("description") or "",
            execute=execute,
            input_schema=function["parameters"],
        )

    async def replay(self, provider: FakeProvider, client: Client) -> None:
        """Have the conversation on a thread of its own; `provider` has the requests afterwards."""
        provider.say(*(exchange.answer for exchange in self.exchanges))
        agent, memory = client.agent(self.key), Memory(thread=self.key, resource="reader", last_messages=50)
        for exchange in self.exchanges:
            await agent.generate(exchange.says or GO_ON, memory=memory, max_steps=1, timeout=30)

    def differences(self, provider: FakeProvider, left_out: tuple[int, ...] = ()) -> dict[str, Any]:
        """Where the requests differ from the recorded ones, with what was sent and what was recorded.
        `left_out` are recorded messages that are not looked for."""
        assert len(provider.requests) == len(self.exchanges), self.key
        found: dict[str, Any] = {}
        for sent, exchange in zip(provider.requests, self.exchanges, strict=True):
            recorded = dict(exchange.request)
            recorded["messages"] = [m for n, m in enumerate(recorded["messages"]) if n not in left_out]
            found.update(compared(comparable(sent.body), comparable(recorded), ""))
        return found


def only(results: Mapping[str, str]) -> str:
    """The value of the one entry."""
    [value] = results.values()
    return value


def comparable(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what only looks different: order of keys, values that say nothing, text as the only
    part of a list, messages that say nothing, and what is said to go on."""
    messages = [plain(message) for message in body["messages"]]
    return {
        **{key: value for key, value in body.items() if key not in OUR_WAY},
        "model": body["model"],
        "messages": [m for m in messages if len(m) > 1 and m.get("content") != GO_ON],
        "tools": [without_nothing({**tool, "function": without_nothing(tool["function"])})
                  for tool in body.get("tools") or []],
    }  # fmt: skip


def plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without what says nothing; text alone is no list of parts."""
    made = without_nothing(message)
    match made.get("content"):
        case [{"type": "text", "text": text}]:
            made["content"] = text
    if "reasoning_details" in made:
        made["reasoning_details"] = [without_nothing(detail) for detail in made["reasoning_details"]]
    return made


def without_nothing(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object without its empty values."""
    return {key: item for key, item in value.items() if item not in (None, "", [], False)}


def compared(sent: Any, recorded: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each place where two values differ."""
    if isinstance(sent, dict) and isinstance(recorded, dict):
        keys: Any = sorted({*sent, *recorded})
    elif isinstance(sent, list) and isinstance(recorded, list):
        keys = range(max(len(sent), len(recorded)))
    else:
        if (type(sent), sent) != (type(recorded), recorded):
            yield path, (sent, recorded)
        return
    for key in keys:
        yield from compared(at(sent, key), at(recorded, key), f"{path}.{key}".lstrip("."))


def at(value: Any, key: Any) -> Any:
    """An entry; None where there is none."""
    if isinstance(value, list):
        return value[key] if key < len(value) else None
    return value.get(key)


def conversations(folder: Path) -> Iterator[Conversation]:
    """The recordings of a folder that are conversations."""
    for path in sorted(folder.glob("[0-9]*.json")):
        recording = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        if recording.get("multi_kind") == "conversation":
            yield Conversation(path.name[:3], recording)


@contextlib.asynccontextmanager
async def back_ends(conversations: list[Conversation]) -> AsyncIterator[dict[str, FakeProvider]]:
    """A provider for each conversation, by its number."""
    async with contextlib.AsyncExitStack() as stack:
        yield {one.key: await stack.enter_async_context(FakeProvider()) for one in conversations}
