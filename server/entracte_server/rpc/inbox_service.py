"""InboxService: what waits for people, and what people decided."""

from entracte.v1 import inbox_service_pb2 as pb
from entracte_server.domain.errors import Refusal
from entracte_server.domain.runs import DecisionRow, PendingRow
from entracte_server.engine.decisions import refusal_of
from entracte_server.engine.engine import Engine, draining
from entracte_server.engine.runlog import now_ms
from entracte_server.rpc import checks
from entracte_server.rpc.call import Context, current
from entracte_server.rpc.open_calls import OpenCalls
from entracte_server.rpc.resources import decision_message, pending_message
from entracte_server.rpc.streaming import PatientWriter
from entracte_server.store.base import (
    Claim,
    DecisionFilter,
    NotFound,
    PendingFilter,
    Refused,
    RequestKey,
)

DEFAULT_CLAIM = 300.0
MAX_CLAIM = 86400.0


class InboxService:
    """See the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def ListPendingCalls(
        self, request: pb.ListPendingCallsRequest, context: Context
    ) -> pb.ListPendingCallsResponse:
        """List pending calls, oldest first."""
        where = PendingFilter(
            run_id=checks.identifier("run_id", request.run_id, required=False),
            agent_id=checks.identifier("agent_id", request.agent_id, required=False),
            thread_id=checks.identifier("thread_id", request.thread_id, required=False),
            resource_id=checks.identifier("resource_id", request.resource_id, required=False),
            include_decided=request.include_decided,
        )
        size = checks.page_size(request.page_size)
        cursor = checks.page_cursor(request)
        try:
            rows, following = await self._engine.store.list_pending(
                current.get().principal.tenant, where, cursor=cursor, limit=size
            )
        except ValueError:
            raise checks.bad_page_token() from None
        now = now_ms()
        return pb.ListPendingCallsResponse(
            pending_calls=[pending_message(row, decision, now) for row, decision in rows],
            next_page_token=checks.page_token(request, following),
        )

    async def GetPendingCall(
        self, request: pb.GetPendingCallRequest, context: Context
    ) -> pb.GetPendingCallResponse:
        """Read a pending call."""
        pending_call_id = checks.identifier("pending_call_id", request.pending_call_id)
        row, decision = await self._get(pending_call_id)
        return pb.GetPendingCallResponse(pending_call=pending_message(row, decision, now_ms()))

    async def _get(self, pending_call_id: str) -> tuple[PendingRow, DecisionRow | None]:
        tenant = current.get().principal.tenant
        try:
            return await self._engine.store.get_pending(tenant, pending_call_id)
        except NotFound:
            raise _not_found(pending_call_id) from None

    async def WatchPendingCalls(self, request: pb.WatchPendingCallsRequest, context: Context) -> None:
        """Write the open calls, then what changes."""
        tenant = current.get().principal.tenant
        where = PendingFilter(
            run_id=checks.identifier("run_id", request.run_id, required=False),
            agent_id=checks.identifier("agent_id", request.agent_id, required=False),
            resource_id=checks.identifier("resource_id", request.resource_id, required=False),
        )
        timeout = self._engine.settings.reader_timeout
        with self._engine.hub.inbox.watch(tenant) as changes, PatientWriter(context, timeout) as writer:
            watch = OpenCalls(self._engine.store, tenant, where)
            async for response in watch.snapshot():
                await writer.write(response)
            await writer.write(pb.WatchPendingCallsResponse(snapshot_complete=True))
            while not self._engine.draining:
                silence = min(self._engine.settings.keep_alive, watch.claims_end_in())
                ids: set[str] | None = set()
                if await changes.wait(silence):
                    ids = changes.take()
                elif not watch.ended_claims():
                    await writer.write(pb.WatchPendingCallsResponse())
                    ids = None  # in case a change was not heard of
                if ids is not None:
                    ids |= watch.ended_claims()
                async for response in watch.snapshot() if ids is None else watch.look(ids):
                    await writer.write(response)
        raise draining()

    async def ClaimPendingCall(
        self, request: pb.ClaimPendingCallRequest, context: Context
    ) -> pb.ClaimPendingCallResponse:
        """Claim a call."""
        ttl = DEFAULT_CLAIM
        if request.HasField("ttl"):
            ttl = checks.duration("ttl", request.ttl, 1, MAX_CLAIM)
        until = now_ms() + int(ttl * 1000)
        row, replayed = await self._claim(request.pending_call_id, until, checks.request_key(request))
        return pb.ClaimPendingCallResponse(
            pending_call=pending_message(row, None, now_ms()), replayed=replayed
        )

    async def ReleasePendingCall(
        self, request: pb.ReleasePendingCallRequest, context: Context
    ) -> pb.ReleasePendingCallResponse:
        """Release a claim."""
        row, replayed = await self._claim(request.pending_call_id, 0, checks.request_key(request))
        return pb.ReleasePendingCallResponse(
            pending_call=pending_message(row, None, now_ms()), replayed=replayed
        )

    async def _claim(
        self, pending_call_id: str, until: int, request: RequestKey | None
    ) -> tuple[PendingRow, bool]:
        call = current.get()
        call.require("decide")
        op = Claim(
            tenant=call.principal.tenant,
            pending_call_id=checks.identifier("pending_call_id", pending_call_id),
            principal=call.principal.name,
            until=until,
            now=now_ms(),
            request=request,
        )
        try:
            row, made = await self._engine.store.claim(op)
        except NotFound:
            raise _not_found(pending_call_id) from None
        except Refused as refused:
            row, _ = await self._get(pending_call_id)
            raise refusal_of(row, refused) from None
        self._engine.hub.inbox.changed(op.tenant, (op.pending_call_id,))
        return row, made is not None

    async def ListDecisions(
        self, request: pb.ListDecisionsRequest, context: Context
    ) -> pb.ListDecisionsResponse:
        """List decisions, newest first."""
        where = DecisionFilter(
            run_id=checks.identifier("run_id", request.run_id, required=False),
            pending_call_id=checks.identifier("pending_call_id", request.pending_call_id, required=False),
            principal=checks.identifier("principal", request.principal, required=False),
        )
        size = checks.page_size(request.page_size)
        cursor = checks.page_cursor(request)
        try:
            rows, following = await self._engine.store.list_decisions(
                current.get().principal.tenant, where, cursor=cursor, limit=size
            )
        except ValueError:
            raise checks.bad_page_token() from None
        return pb.ListDecisionsResponse(
            decisions=[decision_message(row) for row in rows],
            next_page_token=checks.page_token(request, following),
        )


def _not_found(pending_call_id: str) -> Refusal:
    return Refusal(
        "PENDING_CALL_NOT_FOUND", "There is no such pending call.", pending_call_id=pending_call_id
    )
