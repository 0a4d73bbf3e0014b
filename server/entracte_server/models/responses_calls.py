"""The tool calls in an answer of the Responses API."""

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.chunks import (
    ToolCall,
    ToolCallDelta,
    ToolCallInputStreamingEnd,
    ToolCallInputStreamingStart,
)
from entracte_server.models.base import ModelEvent
from entracte_server.models.provider_json import json_of
from entracte_server.models.responses_items import keep
from entracte_server.models.surrogates import SurrogateJoiner
from entracte_server.models.tool_calls import finished_call, mint_call_id

_COMMON = frozenset({"type", "id", "call_id", "name", "arguments", "status"})

# What of an item is its call's arguments, for each tool that the provider executes.
_BY_PROVIDER: Mapping[str, tuple[str, ...]] = {
    "web_search_call": ("action",),
    "file_search_call": ("queries",),
    "code_interpreter_call": ("code", "container_id"),
    "image_generation_call": ("revised_prompt", "size", "quality"),
    "mcp_call": ("server_label", "arguments"),
}


class _Call:
    __slots__ = ("args", "extras", "id", "name", "size", "whole")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.args: list[str] = []
        self.size = 0
        self.extras: dict[str, Any] = {}
        self.whole = False


class ItemCalls:
    """Calls by the index of their item. `dropped` counts those without a name."""

    def __init__(self, provider: str, reserved_ids: Container[str]) -> None:
        self._provider = provider
        self._reserved = reserved_ids
        self._joiner = SurrogateJoiner()
        self._calls: dict[int, _Call] = {}
        self._ids: set[str] = set()
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def open(self, index: int, item: dict[str, Any], out: list[ModelEvent]) -> bool:
        """A call begins; tells whether it is a new one."""
        name = item.get("name")
        if index in self._calls or not isinstance(name, str) or not name:
            return False
        call = self._calls[index] = _Call(self._new_id(item.get("call_id")), json_text.scrub(name))
        out.append(ToolCallInputStreamingStart(call.id, call.name))
        return True

    def extend(self, index: int, piece: Any, out: list[ModelEvent]) -> bool:
        """Takes a piece of a call's arguments."""
        call = self._calls.get(index)
        if call is None or not piece or not isinstance(piece, str):
            return False
        # Past the largest JSON accepted the call is refused anyway: what follows is not kept.
        if call.size <= json_text.MAX_JSON_BYTES and (piece := self._joiner.join(call.id, piece)):
            call.size += len(piece)
            call.args.append(piece)
            out.append(ToolCallDelta(call.id, piece, call.name))
        return True

    def end_args(self, index: int, text: Any, out: list[ModelEvent]) -> None:
        """Takes the end of a call's arguments, and the whole of them, `text`, if they were not streamed."""
        if (call := self._calls.get(index)) is not None:
            if not call.args:
                self.extend(index, text, out)
            call.whole = True

    def whole(self, index: int, item: dict[str, Any], out: list[ModelEvent]) -> None:
        """Takes a complete call: its arguments, where they were not streamed, and what else it has."""
        self.open(index, item, out)
        call = self._calls.get(index)
        if call is None:
            self.dropped += 1
            return
        if item.get("status") != "incomplete":
            self.end_args(index, item.get("arguments"), out)
        call.extras = {k: v for k, v in item.items() if k not in _COMMON and v is not None}

    def by_provider(self, kind: str) -> bool:
        """Whether items of this kind are calls that the provider has executed."""
        return kind in _BY_PROVIDER

    def executed(self, item: dict[str, Any], kind: str, out: list[ModelEvent]) -> None:
        """Takes a call that the provider has executed."""
        id = self._new_id(item.get("id"))
        name = item.get("name") if kind == "mcp_call" else None
        name = json_text.scrub(name) if isinstance(name, str) and name else kind.removesuffix("_call")
        args: Any = {key: item[key] for key in _BY_PROVIDER[kind] if item.get(key) is not None}
        text = json_of(args)
        out += [
            ToolCallInputStreamingStart(id, name),
            ToolCallDelta(id, text, name),
            ToolCallInputStreamingEnd(id),
            ToolCall(id, name, text, provider_executed=True),
        ]

    def finish(self, out: list[ModelEvent], *, whole: bool) -> None:
        """Gives the calls: they are complete only when the answer is. `whole` tells whether it was not cut:
        if it was, calls whose end has not come cannot be executed."""
        for index, call in self._calls.items():
            if left := self._joiner.flush(call.id):
                call.args.append(left)
                out.append(ToolCallDelta(call.id, left, call.name))
            more = {"item": call.extras} if call.extras else {}
            metadata = keep(self._provider, index, **more)
            out.append(ToolCallInputStreamingEnd(call.id))
            text = "".join(call.args)
            if whole or call.whole:
                out.append(finished_call(call.id, call.name, text, metadata))
            else:
                cut = ToolCall(call.id, call.name, None, text, "the arguments are not complete")
                out.append(msgspec.structs.replace(cut, provider_metadata=metadata))

    def _new_id(self, given: Any) -> str:
        id = json_text.scrub(given) if isinstance(given, str) else ""
        if not id or id in self._reserved or id in self._ids:
            id = mint_call_id()
        self._ids.add(id)
        return id
