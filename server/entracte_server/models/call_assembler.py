"""Tool calls put together from the pieces providers send, however they are labelled.

The rules, strongest first. A new provider id opens a new call, and a known one continues its call. A
piece without an id belongs to the call of its index, unless it brings another name, or the same name
after that call's arguments are complete. A piece without id and index belongs to the newest call,
with the same exceptions. A piece with an unknown index and neither id nor name continues the newest
call if that one's index collided with an earlier call's, and opens a call otherwise.
"""

from collections.abc import Container
from typing import Any

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.chunks import (
    ToolCallDelta,
    ToolCallInputStreamingEnd,
    ToolCallInputStreamingStart,
)
from entracte_server.models.base import ModelEvent
from entracte_server.models.plain_delta import ArgsPiece
from entracte_server.models.provider_json import json_of
from entracte_server.models.surrogates import SurrogateJoiner
from entracte_server.models.tool_calls import finished_call, mint_call_id

_KNOWN_KEYS = frozenset({"index", "id", "type", "function"})


class _Call:
    """A call being put together. `id` is what is shown, empty until then; `provider_id` is what the
    provider calls it."""

    __slots__ = ("args", "collided", "extras", "id", "name", "provider_id", "size")

    def __init__(self) -> None:
        self.id = ""
        self.provider_id = ""
        self.name = ""
        self.args: list[str] = []
        self.size = 0
        self.collided = False
        self.extras: dict[str, Any] = {}

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object."""
        text = "".join(self.args).strip()
        if not text.endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode(text), dict)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return False


class CallAssembler:
    """The tool calls of one answer, in the order in which they were opened.

    Ids are settled before a call is first shown: one that is missing, or used before in the run or
    in this answer, is replaced by one of ours. `dropped` counts calls that never got a name.
    """

    def __init__(self, reserved_ids: Container[str], joiner: SurrogateJoiner) -> None:
        self._reserved = reserved_ids
        self._joiner = joiner
        self._calls: list[_Call] = []
        self._by_index: dict[object, _Call] = {}
        self._by_provider_id: dict[str, _Call] = {}
        self._shown_ids: set[str] = set()
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, pieces: Any, out: list[ModelEvent], *, whole: bool = False) -> bool:
        """Takes the `tool_calls` of one delta; tells whether they brought a call, a name or arguments.
        With `whole` each entry is a call of its own."""
        if isinstance(pieces, dict):
            pieces = [pieces]
        if not isinstance(pieces, list):
            return False
        forward = False
        touched: list[_Call] = []
        for piece in pieces:
            if not isinstance(piece, dict):
                continue
            function = piece.get("function")
            if not isinstance(function, dict):
                function = piece if "name" in piece or "arguments" in piece else {}
            name = _text(function.get("name")).strip()
            provider_id = _text(piece.get("id"))
            args = _args_text(function.get("arguments"))
            index = piece.get("index")
            if not isinstance(index, (int, str)):
                index = None
            call = None if whole else self._find(index, provider_id, name, args, touched)
            if call is None:
                if not (name or provider_id or args):
                    continue
                call = self._open(index)
                forward = True
            touched.append(call)
            if provider_id and not call.provider_id:
                call.provider_id = provider_id
                self._by_provider_id.setdefault(provider_id, call)
            for key in piece.keys() - _KNOWN_KEYS:
                if piece[key] is not None and function is not piece:
                    call.extras[key] = piece[key]
            forward = forward or bool(args or (name and not call.name))
            self._grow(call, name, args, out)
        return forward

    def continues(self, pieces: list[ArgsPiece]) -> bool:
        """Whether all these pieces belong to calls that are shown already."""
        return all((call := self._by_index.get(piece.index)) is not None and call.name for piece in pieces)

    def extend(self, pieces: list[ArgsPiece], out: list[ModelEvent]) -> bool:
        """Takes pieces that continue shown calls and hold no halves of surrogate pairs; tells whether
        they brought arguments."""
        forward = False
        for piece in pieces:
            self._append(self._by_index[piece.index], piece.function.arguments, out)
            forward = forward or bool(piece.function.arguments)
        return forward

    def finish(self, out: list[ModelEvent]) -> None:
        """Ends every call, in order."""
        for call in self._calls:
            if not call.name:
                self.dropped += 1
                continue
            self._append(call, self._joiner.flush(call), out)
            text = "".join(call.args)
            metadata = json_of(call.extras) if call.extras else None
            out.append(ToolCallInputStreamingEnd(call.id))
            out.append(finished_call(call.id, call.name, text, metadata))

    def _find(
        self, index: int | str | None, provider_id: str, name: str, args: str, touched: list[_Call]
    ) -> _Call | None:
        """The call that a piece continues; None if it opens one."""
        owner = None if index is None else self._by_index.get(index)
        newest = self._calls[-1] if self._calls else None
        if provider_id:
            return self._find_by_id(index, provider_id, name, owner, newest, touched)
        if owner is not None:
            return None if _is_another(owner, name, bool(args)) else owner
        if index is not None:
            if not name and newest is not None and newest.collided:
                self._by_index[index] = newest
                return newest
            return None
        if newest is None or not name or not newest.name:
            return newest
        return None if newest in touched or _is_another(newest, name, True) else newest

    def _find_by_id(
        self,
        index: int | str | None,
        provider_id: str,
        name: str,
        owner: _Call | None,
        newest: _Call | None,
        touched: list[_Call],
    ) -> _Call | None:
        known = self._by_provider_id.get(provider_id)
        if known is None:
            # The id of a call that began without one may come late.
            candidate = newest if index is None else owner
            if candidate is None or candidate.provider_id or (index is None and candidate.name):
                return None
            return None if _is_another(candidate, name, True) else candidate
        if owner is not None and owner.provider_id == provider_id:
            known = owner
        elif index is not None and owner is None and name:
            return None
        return None if name and index is None and known in touched else known

    def _open(self, index: int | str | None) -> _Call:
        call = _Call()
        self._calls.append(call)
        if index is not None:
            call.collided = index in self._by_index
            self._by_index[index] = call
        return call

    def _grow(self, call: _Call, name: str, args: str, out: list[ModelEvent]) -> None:
        if name and not call.name:
            call.name = json_text.scrub(name)
            call.id = json_text.scrub(call.provider_id)
            if not call.id or call.id in self._reserved or call.id in self._shown_ids:
                call.id = mint_call_id()
            self._shown_ids.add(call.id)
            out.append(ToolCallInputStreamingStart(call.id, call.name))
            held = "".join(call.args)
            if held:
                out.append(ToolCallDelta(call.id, held, call.name))
        if args:
            self._append(call, self._joiner.join(call, args), out)

    def _append(self, call: _Call, text: str, out: list[ModelEvent]) -> None:
        # Past the largest JSON accepted the call is refused anyway: what follows is not kept.
        if not text or call.size > json_text.MAX_JSON_BYTES:
            return
        call.size += len(text)
        call.args.append(text)
        if call.name:
            out.append(ToolCallDelta(call.id, text, call.name))


def _is_another(call: _Call, name: str, has_args: bool) -> bool:
    """Whether a piece with this name, labelled as belonging to `call`, is another call's."""
    if not name or not call.name:
        return False
    return name != call.name or (has_args and call.complete())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _args_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    try:
        return json_text.dump(arguments)
    except (TypeError, ValueError):
        return str(arguments)
