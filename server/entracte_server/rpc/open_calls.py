"""The open calls as one watcher knows them, and what to tell it when they change."""

import math
from collections.abc import AsyncIterator, Iterable

from entracte.v1 import inbox_service_pb2 as pb
from entracte_server.domain.runs import PendingRow
from entracte_server.engine.runlog import now_ms
from entracte_server.rpc.resources import pending_message
from entracte_server.store.base import NotFound, PendingFilter, Store

PAGE = 200

RESPONSE_BYTES = 4 * 1024 * 1024
"""A response that has this much is sent before more is added."""

_Claim = tuple[str, int]


def _claim(row: PendingRow, now: int) -> _Claim:
    return (row.claimed_by, row.claimed_until) if row.claimed_until > now else ("", 0)


class OpenCalls:
    """See the module. `where` has filters by run, agent and resource."""

    def __init__(self, store: Store, tenant: str, where: PendingFilter) -> None:
        self._store = store
        self._tenant = tenant
        self._where = where
        self._known: dict[str, _Claim] = {}

    async def snapshot(self) -> AsyncIterator[pb.WatchPendingCallsResponse]:
        """Look at everything; what the watcher does not know yet."""
        seen: dict[str, _Claim] = {}
        cursor = ""
        while True:
            rows, cursor = await self._store.list_pending(
                self._tenant, self._where, cursor=cursor, limit=PAGE
            )
            now = now_ms()
            opened = []
            for row, _ in rows:
                claim = seen[row.pending_call_id] = _claim(row, now)
                if self._known.get(row.pending_call_id) != claim:
                    opened.append(pending_message(row, None, now))
            if opened:
                yield pb.WatchPendingCallsResponse(opened=opened)
            if not cursor:
                break
        closed = [key for key in self._known if key not in seen]
        self._known = seen
        if closed:
            yield pb.WatchPendingCallsResponse(closed_pending_call_ids=closed)

    async def look(self, ids: Iterable[str]) -> AsyncIterator[pb.WatchPendingCallsResponse]:
        """Look at these calls only; what the watcher does not know yet."""
        response, size = pb.WatchPendingCallsResponse(), 0
        for pending_call_id in sorted(ids):
            try:
                row, _ = await self._store.get_pending(self._tenant, pending_call_id)
            except NotFound:
                row = None
            now = now_ms()
            if row is not None and row.state == "open" and self._matches(row):
                claim = _claim(row, now)
                if self._known.get(pending_call_id) != claim:
                    self._known[pending_call_id] = claim
                    message = pending_message(row, None, now)
                    response.opened.append(message)
                    size += message.ByteSize()
                    if size > RESPONSE_BYTES:
                        yield response
                        response, size = pb.WatchPendingCallsResponse(), 0
            elif self._known.pop(pending_call_id, None) is not None:
                response.closed_pending_call_ids.append(pending_call_id)
        if response.opened or response.closed_pending_call_ids:
            yield response

    def claims_end_in(self) -> float:
        """Seconds until a claim that the watcher was shown runs out; nobody says so when it does."""
        ends = [until for _, until in self._known.values() if until]
        return max(0.0, (min(ends) - now_ms()) / 1000) if ends else math.inf

    def ended_claims(self) -> set[str]:
        """The calls whose claim, as the watcher was shown it, has run out."""
        now = now_ms()
        return {key for key, (_, until) in self._known.items() if 0 < until <= now}

    def _matches(self, row: PendingRow) -> bool:
        where = self._where
        return (
            where.run_id in ("", row.run_id)
            and where.agent_id in ("", row.agent_id)
            and where.resource_id in ("", row.resource_id)
        )
