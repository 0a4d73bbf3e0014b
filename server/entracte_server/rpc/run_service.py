"""RunService: looks at runs, follows them, ends them."""

from collections.abc import AsyncIterator, Iterable

import msgspec

from entracte.v1 import run_service_pb2 as pb
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import RunRow
from entracte_server.engine.engine import Engine
from entracte_server.engine.reading import KeepAlive, Reader
from entracte_server.engine.runlog import now_ms
from entracte_server.rpc import checks
from entracte_server.rpc.call import Context, current
from entracte_server.rpc.resources import STATES, follow_up_message, run_message
from entracte_server.rpc.results import result_message
from entracte_server.rpc.streaming import send
from entracte_server.store.base import Cancel, NotFound, Refused, RunFilter

MAX_REASON = 4 * 1024


async def _late(reader: Reader) -> AsyncIterator[bytes | KeepAlive]:
    async for item in reader.late():
        if isinstance(item, KeepAlive):
            yield item
        else:
            yield pb.WatchRunResponse(follow_ups=[follow_up_message(row) for row in item]).SerializeToString()


class RunService:
    """See the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _of(self, run_id: str) -> tuple[str, str]:
        """Tenant and run id of a request about one run."""
        call = current.get()
        call.run_id = checks.identifier("run_id", run_id)
        return call.principal.tenant, call.run_id

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        """Read a run."""
        tenant, run_id = self._of(request.run_id)
        snapshot = await self._engine.store.load(tenant, run_id)
        row = snapshot.run
        if row.root_run_id not in ("", run_id):
            root = await self._engine.store.get_run(tenant, row.root_run_id)
            row = msgspec.structs.replace(row, last_sequence=root.last_sequence)
        run = run_message(
            row,
            snapshot.waiting,
            snapshot.spec.options.request_context,
            await self._follow_ups(tenant, [snapshot.run]),
        )
        if request.omit_result:
            return pb.GetRunResponse(run=run)
        snapshot = await self._engine.recollected(snapshot)
        result = result_message(snapshot, await self._engine.request_body(snapshot))
        return pb.GetRunResponse(run=run, result=result)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        """List runs, newest first."""
        for i, state in enumerate(request.states):
            if state not in STATES.texts:
                raise invalid(f"states[{i}]", "is not a state")
        where = RunFilter(
            states=tuple(STATES.texts[state] for state in request.states),
            agent_id=checks.identifier("agent_id", request.agent_id, required=False),
            thread_id=checks.identifier("thread_id", request.thread_id, required=False),
            include_children=request.include_children,
        )
        size = checks.page_size(request.page_size)
        cursor = checks.page_cursor(request)
        try:
            rows, following = await self._engine.store.list_runs(
                current.get().principal.tenant, where, cursor=cursor, limit=size
            )
        except ValueError:
            raise checks.bad_page_token() from None
        jobs: dict[str, list[FollowUpRow]] = {}
        for job in await self._follow_ups(current.get().principal.tenant, rows):
            jobs.setdefault(job.run_id, []).append(job)
        return pb.ListRunsResponse(
            runs=[run_message(row, follow_ups=jobs.get(row.run_id, ())) for row in rows],
            next_page_token=checks.page_token(request, following),
        )

    async def _follow_ups(self, tenant: str, runs: Iterable[RunRow]) -> list[FollowUpRow]:
        """Only runs that succeeded have any."""
        run_ids = [run.run_id for run in runs if run.state == "succeeded"]
        return await self._engine.store.follow_ups(tenant, run_ids) if run_ids else []

    async def WatchRun(self, request: pb.WatchRunRequest, context: Context) -> None:
        """Write a run's chunks from a position until it rests."""
        tenant, run_id = self._of(request.run_id)
        with Reader(self._engine, tenant, run_id, after=request.after_sequence) as reader:
            run = await self._engine.store.get_run(tenant, run_id)
            is_part = run.root_run_id not in ("", run_id)
            if not is_part:
                await send(
                    context,
                    reader.follow(run, until_finished=request.until_finished),
                    run_id=run_id,
                    reader_timeout=self._engine.settings.reader_timeout,
                )
            if request.include_late and not is_part:
                await send(
                    context,
                    _late(reader),
                    run_id=run_id,
                    reader_timeout=self._engine.settings.reader_timeout,
                )

        if is_part:
            await self._watch_part(request, context, tenant, run.root_run_id)

    async def _watch_part(
        self, request: pb.WatchRunRequest, context: Context, tenant: str, root_run_id: str
    ) -> None:
        """Write what a sub-agent's run has of its root's chunks. There is nothing to do after its end."""
        with Reader(self._engine, tenant, root_run_id, after=request.after_sequence) as reader:
            child = await self._engine.store.load(tenant, request.run_id)
            root = await self._engine.store.get_run(tenant, root_run_id)
            await send(
                context,
                reader.follow_part(child, root, until_finished=request.until_finished),
                run_id=request.run_id,
                reader_timeout=self._engine.settings.reader_timeout,
            )

    async def _refuse_part(self, tenant: str, run_id: str) -> None:
        """Raises `Refusal` RUN_OF_SUB_AGENT."""
        try:
            run = await self._engine.store.get_run(tenant, run_id)
        except NotFound:  # perhaps it was deleted by an earlier request like this
            return
        if run.root_run_id not in ("", run_id):
            raise Refusal(
                "RUN_OF_SUB_AGENT",
                "The run is a sub-agent's. It is cancelled and deleted with its root: name that one.",
                run_id=run_id,
                root_run_id=run.root_run_id,
            )

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        """Cancel a run."""
        current.get().require("run")
        tenant, run_id = self._of(request.run_id)
        await self._refuse_part(tenant, run_id)
        op = Cancel(
            tenant=tenant,
            run_id=run_id,
            reason=checks.text("reason", request.reason, MAX_REASON),
            owner=self._engine.owner,
            now=now_ms(),
            request=checks.request_key(request),
        )
        with Reader(self._engine, tenant, run_id, counts=False) as reader:
            run, replayed = await self._engine.cancel(op)
            if request.wait:
                run = (await reader.until_rest(run, until_finished=True)).run
        return pb.CancelRunResponse(run=run_message(run), replayed=replayed)

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Context) -> pb.DeleteRunResponse:
        """Delete all of a run."""
        current.get().require("run")
        tenant, run_id = self._of(request.run_id)
        await self._refuse_part(tenant, run_id)
        try:
            replayed = await self._engine.delete(
                tenant, run_id, force=request.force, request=checks.request_key(request)
            )
        except Refused as refused:
            state = refused.run.state if refused.run is not None else ""
            raise Refusal(
                "RUN_NOT_FINISHED",
                f"The run is {state}; cancel it first, or use force for a suspended one.",
                run_id=run_id,
                state=state,
            ) from None
        return pb.DeleteRunResponse(replayed=replayed)
