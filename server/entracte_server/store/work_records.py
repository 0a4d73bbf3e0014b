"""Records of work to columns and back, and how work is shared; for the stores of SQL databases."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from entracte_server.domain.work import Answer, NewWork, OfferedTool, Output, ToolTask
from entracte_server.store.records import encode
from entracte_server.store.work import MAX_DELIVERIES, Bearer, Handled, Seat, WorkRefused

decode_task = msgspec.msgpack.Decoder(ToolTask).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_output = msgspec.msgpack.Decoder(Output).decode
decode_tool = msgspec.msgpack.Decoder(OfferedTool).decode
decode_targets = msgspec.msgpack.Decoder(tuple[str, ...]).decode

OUTPUT_PAGE = 1024 * 1024
"""How much output of one piece of work is read at once, in bytes."""


def new_work_values(work: NewWork) -> tuple[object, ...]:
    """Work id, call id, target, timeout, wait, queue, idempotent, task."""
    return (
        work.work_id,
        work.call_id,
        work.target,
        work.timeout,
        work.wait,
        work.queue,
        int(work.idempotent),
        encode(work.task),
    )


def tool_data(tool: OfferedTool) -> bytes:
    """A tool as it is stored: without what only its session has."""
    return encode(msgspec.structs.replace(tool, concurrency=0))


def targets_data(tools: Iterable[OfferedTool]) -> bytes:
    """What a session offers."""
    return encode([tool.target for tool in tools])


def wanted(seats: Sequence[Seat], limit: int) -> list[tuple[str, int]]:
    """How much of each target the seats have room for."""
    room: dict[str, int] = {}
    for seat in seats:
        for target, number in seat.room:
            room[target] = room.get(target, 0) + min(number, seat.free)
    return [(target, min(number, limit)) for target, number in room.items() if number > 0]


def share(found: Sequence[tuple[int, str]], seats: Sequence[Seat], limit: int) -> list[tuple[int, Seat]]:
    """Which seat gets which piece of work (row id, target), in the order of row ids: always the one with
    most room left."""
    free = [seat.free for seat in seats]
    room = [dict(seat.room) for seat in seats]
    shared: list[tuple[int, Seat]] = []
    for row, target in sorted(found):
        able = [i for i in range(len(seats)) if free[i] > 0 and room[i].get(target, 0) > 0]
        if len(shared) == limit:
            break
        if not able:
            continue
        best = max(able, key=free.__getitem__)
        free[best] -= 1
        room[best][target] -= 1
        shared.append((row, seats[best]))
    return shared


def new_token() -> str:
    """A token nobody can guess."""
    return secrets.token_urlsafe(18)


def after_loss(idempotent: bool, deliveries: int) -> Literal["open", "lost"]:
    """The state of work whose session was lost."""
    return "open" if idempotent and deliveries < MAX_DELIVERIES else "lost"


def unchanged(
    bearer: Bearer, row: tuple[str, str, str, bytes | None] | None, digest: bytes | None = None
) -> Handled:
    """What comes of a change that its bearer could not make: a repetition, or `WorkRefused`. `row` is how
    the work stands (principal, token, state, digest of its answer), `digest` that of the answer it is to
    get."""
    if row is None or row[0] != bearer.principal:
        raise WorkRefused("unknown")
    _, token, state, stored = row
    if token != bearer.token:
        raise WorkRefused("reassigned")
    if stored is not None:
        if stored == digest:
            return Handled(replayed=True)
        raise WorkRefused("completed")
    raise WorkRefused("reassigned" if state == "open" else "closed")
