"""The engine of one process: starts runs, takes decisions and cancellations, owns the tasks.

A run's task belongs to the engine, never to an RPC: a caller that goes away leaves it running. What
changes state is done in tasks of the engine too, so that a change that was committed is acted upon
even when the caller was cancelled meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import msgspec
import structlog

from entracte_server.agents.agent import Agent, App
from entracte_server.domain.errors import Reason, Refusal, invalid
from entracte_server.domain.runs import TERMINAL, CallRow, RunRow, Snapshot
from entracte_server.engine import claiming
from entracte_server.engine.approving import Approving
from entracte_server.engine.configure import last_request
from entracte_server.engine.desk import Desk
from entracte_server.engine.family import Family, again, bare
from entracte_server.engine.follow_ups import FollowUps
from entracte_server.engine.followers import Followers
from entracte_server.engine.hub import Hub, RunKey
from entracte_server.engine.keeper import Keeper
from entracte_server.engine.lease import Lease
from entracte_server.engine.limits import RunLimits
from entracte_server.engine.older import recall_fault
from entracte_server.engine.outside import OutsideWork
from entracte_server.engine.remembering import claim_of, recollected
from entracte_server.engine.run import RunExecution
from entracte_server.engine.runlog import RunLog, now_ms
from entracte_server.engine.score_jobs import ScoreJobs
from entracte_server.engine.services import EmbedderResolver, ModelResolver, Services, given_only
from entracte_server.engine.settings import EngineSettings
from entracte_server.engine.starting import Start, Started, new_run
from entracte_server.engine.stored_agents import Lacking, StoredAgents, Tree
from entracte_server.engine.structured_request import as_sent, structuring_fault
from entracte_server.engine.threads import refusal_of_claim
from entracte_server.engine.title_jobs import TitleJobs
from entracte_server.engine.toolsets import Toolsets, missing
from entracte_server.engine.upkeep import Upkeep
from entracte_server.models.base import Model
from entracte_server.store.base import (
    Cancel,
    CreateRun,
    Decide,
    Decided,
    LeaseLost,
    Release,
    RequestKey,
    RunWrite,
    Store,
    StoreError,
    ThreadBelow,
    ThreadBusy,
    ThreadNotYours,
)
from entracte_server.store.signals import FREE_RUNS, command_topic
from entracte_server.store.threads import DeletedThread, DeleteThread
from entracte_server.telemetry.base import NOTHING, Segment, Telemetry

_log = structlog.get_logger(__name__)

T = TypeVar("T")

HAND_OVER = 2.0
"""Seconds a server that stops gives to runs that only have to be written down."""

MAX_TAKEOVERS = 3
"""Takeovers of a run without progress between them; at the next one it fails."""

NOT_NOW = frozenset({"TOO_MANY_RUNS", "TOOLSET_UNAVAILABLE", "WORKER_TOOL_UNKNOWN"})
"""Reasons for which a run is not started now, which say nothing about one that was started before."""


def draining() -> Refusal:
    """The refusal of a process that is stopping."""
    return Refusal("SERVER_DRAINING", "The server is stopping; try again, or re-attach.", retry_after=0.5)


class Engine:
    """See the module.

    `resolve` gives the models of an agent, or of a scorer, in the order they are tried, or the one that is
    named, and `embedder` the embedder of that name.
    """

    def __init__(
        self,
        *,
        app: App,
        store: Store,
        resolve: ModelResolver,
        settings: EngineSettings | None = None,
        telemetry: Telemetry = NOTHING,
        embedder: EmbedderResolver = given_only,
    ) -> None:
        self.app = app
        self.store = store
        self.settings = settings or EngineSettings()
        self.telemetry = telemetry
        self.lease = Lease(store, self.settings.lease, self._lease_lost)
        self.outside = OutsideWork(store, self.settings, telemetry)
        self.desk = Desk(store, self.settings, self.lease, self.outside)
        self.hub = Hub(self.settings.reader_backlog, store.signals, self.desk)
        self._resolve = resolve
        self.agents = StoredAgents(app, store, resolve, embedder)
        self.toolsets = Toolsets(app, store)
        self._services = Services(app, store, resolve, self.settings, telemetry, embedder, self.outside)
        self._limits = RunLimits(self.settings.max_runs, self.settings.runs_per_principal)
        self._active: dict[RunKey, RunExecution] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._run_tasks: dict[asyncio.Task[Any], RunKey] = {}
        self._arriving: Counter[RunKey] = Counter()
        self._early_decisions: dict[RunKey, list[CallRow]] = {}
        self._early_cancels: dict[RunKey, str] = {}
        self._stranded: dict[RunKey, Reason] = {}
        self._followers = Followers(self)
        self.broken: set[RunKey] = set()
        """Runs whose execution failed here without an end of the run."""
        scores = ScoreJobs(app.scorers, self._services.scorers, self.settings.scorer_timeout)
        titles = TitleJobs(app, store, resolve, self.agents)
        self._follow_ups = FollowUps(self, {"score": scores, "title": titles})
        self._keeper = Keeper(self, Upkeep(self, self.settings).tick, self._follow_ups)
        self.draining = False

    # ---- life ----

    async def open(self) -> None:
        """Begin to live: take over the runs that dead processes left behind, and go on looking for
        such runs. Raises `StoreError`."""
        await self.lease.take()
        await self._keeper.take_over()
        self._keeper.start()

    async def close(self, grace: float) -> None:
        """Stop. Runs that execute no tool are handed over at once; the others get `grace` seconds for
        their tools to end, then they are cut off where they are. Other processes go on with all of
        them from their last checkpoint."""
        self.draining = True
        self.desk.wake_all()
        await self._keeper.stop_rounds()
        await self._follow_ups.stop()
        self._followers.stop()
        for execution in self._active.values():
            execution.hand_over()
        # Decisions in flight are among the tasks, and start runs that are handed over as well.
        await self._until_done(grace)
        for task, key in list(self._run_tasks.items()):
            if key in self._active and self._active[key].executing:
                task.cancel()
        await self._until_done(HAND_OVER)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._keeper.stop()
        await self.desk.close()
        await self.lease.give_up()
        await self.toolsets.close()

    async def _until_done(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._tasks and loop.time() < end:
            await asyncio.wait(list(self._tasks), timeout=end - loop.time())

    @property
    def owner(self) -> str:
        """Who this process is when it takes a run. Raises `Refusal` SERVER_DRAINING, STORE_UNAVAILABLE."""
        if self.draining:
            raise draining()
        return self.lease.owner

    @property
    def active_runs(self) -> int:
        """How many runs this process executes now."""
        return len(self._active)

    def idle(self, key: RunKey) -> bool:
        """Whether a run that this process owns is not executed, and not about to be."""
        return not (key in self._active or key in self._arriving or key in self._stranded)

    def _lease_lost(self, process_id: str) -> None:
        """Other processes may own what this one executes: it stops without another write."""
        for task, key in list(self._run_tasks.items()):
            execution = self._active.get(key)
            if execution is None or execution.log.owner != process_id:
                continue
            if execution.is_entering:  # it says so, so that nobody need ask whether they were entered
                execution.hand_over()
            else:
                execution.log.abandon()
                # Not before it has begun, since then it would not even clear up.
                asyncio.get_running_loop().call_soon(task.cancel)
        self._stranded.clear()
        self.broken.clear()

    def recover(self, row: RunRow) -> None:
        """Go on with a run that was taken over."""
        _log.info("run_taken_over", run_id=row.run_id, fence=row.fence, takeovers=row.takeovers)
        self._spawn(self._recover(row))

    async def _recover(self, row: RunRow) -> None:
        key = (row.tenant, row.run_id)
        with self._coming(key):
            try:
                await self._resume(row, recovered=True)
            except StoreError as error:  # the next round takes it over again
                _log.warning("recovery_failed", run_id=row.run_id, error=str(error))
            except Exception:
                _log.exception("recovery_failed", run_id=row.run_id)
                self._strand(key, "INTERNAL")

    def take_up(self, key: RunKey) -> None:
        """Another process wrote something to a run that may be executed here."""
        if key in self._active:
            self._spawn(self._take_up(key))

    async def _take_up(self, key: RunKey) -> None:
        snapshot = await self.store.load(*key)
        execution = self._execution(snapshot.run)
        if execution is None:
            return
        if snapshot.run.cancel_reason is not None:
            execution.request_cancel(snapshot.run.cancel_reason)
        for call in (*snapshot.calls, *snapshot.below):
            if call.state == "decided":
                execution.deliver(call)

    def _strand(self, key: RunKey, reason: Reason) -> None:
        """This process owns a run but cannot go on with it: leave it alone, and tell its readers. The
        next process tries again."""
        self._stranded[key] = reason
        self.hub.wake(key)

    def check_stranded(self, key: RunKey) -> None:
        """Raises `Refusal` AGENT_UNAVAILABLE or INTERNAL for a run that cannot go on here."""
        reason = self._stranded.get(key) or self._keeper.unattended(key)
        if reason is not None:
            raise Refusal(reason, "This server cannot go on with the run; its log says why.", run_id=key[1])

    @contextmanager
    def _coming(self, key: RunKey) -> Iterator[None]:
        """The run may come to be owned here: what looks for runs that nobody executes leaves it
        alone until its execution is set up."""
        self._arriving[key] += 1
        try:
            yield
        finally:
            self._arriving[key] -= 1
            if not self._arriving[key]:
                del self._arriving[key]
                self._early_decisions.pop(key, None)
                self._early_cancels.pop(key, None)

    def _execution(self, run: RunRow) -> RunExecution | None:
        """The execution of a run under the ownership its row tells of, if it is set up."""
        execution = self._active.get((run.tenant, run.run_id))
        return execution if execution is not None and execution.log.fence == run.fence else None

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of the engine's own."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        key = self._run_tasks.pop(task, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if key is not None or not isinstance(error, (Refusal, StoreError)):
            _log.error("task_failed", run_id=key[1] if key is not None else "", exc_info=error)
        if key is not None:
            self.broken.add(key)

    async def _protected(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done in a task of the engine: cancelling the caller only stops the
        waiting."""
        return await asyncio.shield(self._spawn(work))

    # ---- runs ----

    async def start(self, request: Start) -> Started:
        """Create a run and execute it. Returns when it is durable.

        Raises `Refusal` AGENT_NOT_FOUND, SERVER_DRAINING, TOO_MANY_RUNS, that of the request, and what the
        store raises.
        """
        if self.draining:
            raise draining()
        try:
            if request.refusal is not None:
                raise request.refusal
            tree = request.tree or await self.agents.choose(
                request.tenant, request.agent_id, {}, drafts=False
            )
            return await self._protected(self._start(tree, request))
        except Refusal as refusal:
            # A repeated request starts nothing, so it is not refused for what it would start.
            if not (refusal is request.refusal or refusal.reason in NOT_NOW) or request.request is None:
                raise
            made = await self.store.find_request(request.request)
            if made is None:
                raise
        return Started(await self.store.get_run(request.tenant, made.run_id), replayed=True)

    def room_for(self, request: Start) -> AbstractContextManager[None]:
        """While its context lasts, models may be asked for a request as for a run. Raises `Refusal`
        TOO_MANY_RUNS."""
        return self._limits.starting(request.tenant, request.principal)

    async def _start(self, tree: Tree, request: Start) -> Started:
        with self.room_for(request):
            return await self._create(tree, request)

    async def _create(self, tree: Tree, request: Start) -> Started:
        now, agent = now_ms(), tree.agent
        models = self._resolve(agent)
        if fault := structuring_fault(request.options, self._resolve):
            raise invalid("options.structured_output.model", fault)
        if fault := recall_fault(agent, request.options):
            raise invalid("options.memory.semantic_recall", fault)
        new = new_run(request, agent, models[0].name, owner=self.owner, now=now)
        run, spec, row = new.run, new.spec, new.chunks
        key = (run.tenant, run.run_id)
        segment = self.telemetry.begin(Snapshot(run, spec), agent)
        if segment.trace is not None:
            spec = msgspec.structs.replace(spec, trace=segment.trace)
        memory = request.options.memory
        with self._coming(key):
            claim = None if memory is None else claim_of(memory, self.settings, now)
            try:
                created = await self.store.create_run(CreateRun(run, spec, row, request.request, claim))
            except (ThreadBelow, ThreadBusy, ThreadNotYours) as error:
                raise refusal_of_claim(error, run.thread_id, claim) from None
            if created.made is None and not created.queued:
                family = Family(snapshot := Snapshot(run, spec), agents=tree.agents)
                self._execute(agent, models, snapshot, family, announced=new.announced, segment=segment)
        if created.replaced:
            self._free()
        if created.queued:
            run = await self.store.get_run(*key)
        if created.made is not None:
            return Started(await self.store.get_run(run.tenant, created.made.run_id), replayed=True)
        self.hub.publish(key, row, run.state)
        return Started(run)

    def _free(self) -> None:
        """Some run is running and nobody owns it."""
        self._keeper.look()
        self.store.signals.tell(FREE_RUNS)

    def _execute(
        self,
        agent: Agent,
        models: Sequence[Model],
        snapshot: Snapshot,
        family: Family,
        *,
        announced: bool = False,
        exhausted: bool = False,
        segment: Segment | None = None,
    ) -> None:
        run = snapshot.run
        key = (run.tenant, run.run_id)
        log = RunLog(self.store, self.hub, self.lease, run, self.settings.log_backlog)
        log.has_work = any(call.state == "started" for call in (*snapshot.calls, *snapshot.below))
        execution = RunExecution(
            snapshot=snapshot,
            agent=agent,
            models=models,
            services=self._services,
            log=log,
            family=family,
            toolsets=self.toolsets,
            approving=Approving(agent, snapshot.spec.options, self.app.approval_predicates, run.run_id),
            entering=family.entering,
            announced=announced,
            exhausted=exhausted,
            segment=segment or self.telemetry.resume(snapshot, agent),
        )
        self._active[key] = execution
        # What came after the snapshot was read and before there was an execution to tell.
        for call in self._early_decisions.pop(key, ()):
            execution.deliver(call)
        if (reason := self._early_cancels.pop(key, None)) is not None:
            execution.request_cancel(reason)
        self._limits.enter(run)
        task = self._spawn(self._drive(key, execution))
        self._run_tasks[task] = key
        if self.draining:
            execution.hand_over()
        elif snapshot.spec.options.cancel_on_disconnect:
            self._followers.left(key)

    async def _drive(self, key: RunKey, execution: RunExecution) -> None:
        try:
            with execution.segment:
                await execution.drive()
        finally:
            self._limits.leave(execution.row)
            if self._active.get(key) is execution:
                del self._active[key]
                self._followers.forget(key)
            if execution.has_follow_ups:
                self._follow_ups.look()
            if execution.log.freed:
                self._free()
            if not execution.rested:  # its readers go on with what others make of it
                self.hub.look_again(key)

    async def _resume(
        self,
        row: RunRow,
        snapshot: Snapshot | None = None,
        *,
        entering: frozenset[str] = frozenset(),
        recovered: bool = False,
    ) -> None:
        """Go on with a run this process has just come to own."""
        if snapshot is None:
            snapshot = await self.store.load(row.tenant, row.run_id)
        if snapshot.run.fence != row.fence:
            return
        exhausted = recovered and row.takeovers > MAX_TAKEOVERS
        children = await claiming.children_of(self.store, snapshot)
        tree, lacking = None, self.lacks(claiming.needs(snapshot, children))
        try:
            tree = await self.agents.tree(row.tenant, row.agent_id, snapshot.spec.options.versions)
        except Lacking as error:
            lacking = lacking or str(error)
        if lacking is not None and snapshot.run.cancel_reason is None:
            _log.error("agent_unavailable", run_id=row.run_id, agent_id=row.agent_id, missing=lacking)
            await self._give_back(row, snapshot, entering)
            return
        if lacking is not None:  # all that is left to do is to settle and end it
            snapshot, *children = map(bare, (snapshot, *children))
        agents = tree.agents if tree is not None else self.app.every_agent
        family = Family(snapshot, children, agents=agents, entering=entering, recovered=recovered)
        if tree is None:  # which needs no agent either
            self._execute(Agent(id=row.agent_id, model="none/none"), (), snapshot, family)
            return
        if recovered:
            snapshot = again(snapshot)
        self._execute(tree.agent, self._resolve(tree.agent), snapshot, family, exhausted=exhausted)

    async def _give_back(self, row: RunRow, snapshot: Snapshot, entering: frozenset[str]) -> None:
        """This process came to own a run that it cannot go on with: another one that can takes it over. What
        was marked as started was not entered."""
        calls = [call for call in (*snapshot.calls, *snapshot.below) if call.call_id in entering]
        undone = tuple(msgspec.structs.replace(call, state="decided") for call in calls)
        self._keeper.cannot((row.tenant, row.run_id), row.fence)
        write = RunWrite(row.tenant, row.run_id, row.fence, calls=undone, release=Release(0))
        with suppress(LeaseLost):
            await self.store.write(write)
        self.store.signals.tell(FREE_RUNS)
        self.hub.look_again((row.tenant, row.run_id))

    def lacks(self, needs: Iterable[str]) -> str | None:
        """The first of `needs` of a run that this process does not have."""
        return missing(self.app, needs, self._resolve)

    async def delete(self, tenant: str, run_id: str, *, force: bool, request: RequestKey | None) -> bool:
        """Delete all of a run; says whether an earlier request had done so. Raises what the store
        raises."""
        return await self._protected(self._delete(tenant, run_id, force, request))

    async def _delete(self, tenant: str, run_id: str, force: bool, request: RequestKey | None) -> bool:
        made = await self.store.delete_run(tenant, run_id, force=force, request=request)
        if force:  # it may have had a thread that others wait for
            self._free()
        self.hub.publish((tenant, run_id), None, None)
        self.hub.look_again((tenant, run_id))
        self.hub.inbox.changed(tenant, None)
        return made is not None

    async def delete_thread(self, op: DeleteThread) -> DeletedThread:
        """Delete a thread. Runs that had it, or waited for it, end soon. Raises what the store raises, and
        `Refusal` SERVER_DRAINING, STORE_UNAVAILABLE."""
        return await self._protected(self._delete_thread(op, self.owner))

    async def _delete_thread(self, op: DeleteThread, owner: str) -> DeletedThread:
        deleted = await self.store.delete_thread(op)
        for run_id in deleted.cancelled:  # as was written down already; here they are told
            self.cancel_soon(Cancel(op.tenant, run_id, op.reason, owner, op.now))
        return deleted

    # ---- decisions and cancellation ----

    async def decide(self, op: Decide) -> Decided:
        """Settle a pending call and have its run go on. Raises what the store raises, and `Refusal`
        SERVER_DRAINING."""
        if self.draining:
            raise draining()
        return await self._protected(self._decide(op))

    async def _decide(self, op: Decide) -> Decided:
        with self._coming((op.decision.tenant, op.decision.run_id)):
            return await self._decide_and_go_on(op)

    async def _decide_and_go_on(self, op: Decide) -> Decided:
        decided = await self.store.decide(op)
        if decided.made is None:
            self.hub.inbox.changed(op.decision.tenant, (op.decision.pending_call_id,))
            key = (op.decision.tenant, op.decision.run_id)
            if decided.snapshot is not None:
                self.hub.publish(key, None, "running")
                entering = frozenset((op.call.call_id,)) if op.started is not None else frozenset()
                await self._resume(decided.run, decided.snapshot, entering=entering)
            elif (execution := self._execution(decided.run)) is not None:
                execution.deliver(op.call)
            elif decided.run.owner == self.lease.process_id:
                self._early_decisions.setdefault(key, []).append(op.call)
            else:
                self.store.signals.send(decided.run.owner, command_topic(*key))
        return decided

    async def cancel(self, op: Cancel) -> tuple[RunRow, bool]:
        """Have a run cancelled: its row, and whether an earlier request had asked for it. Raises
        what the store raises, and `Refusal` SERVER_DRAINING."""
        if self.draining:
            raise draining()
        return await self._protected(self._cancel(op))

    async def _cancel(self, op: Cancel) -> tuple[RunRow, bool]:
        with self._coming((op.tenant, op.run_id)):
            return await self._cancel_and_go_on(op)

    async def _cancel_and_go_on(self, op: Cancel) -> tuple[RunRow, bool]:
        cancelled = await self.store.cancel(op)
        key = (op.tenant, op.run_id)
        if cancelled.took:
            self.hub.publish(key, None, "running")
            await self._resume(cancelled.run)
        elif self._stranded.pop(key, None) is not None:
            await self._resume(cancelled.run)
        elif cancelled.run.state not in TERMINAL:
            if (execution := self._execution(cancelled.run)) is not None:
                execution.request_cancel(op.reason)
            elif cancelled.run.owner == self.lease.process_id:
                self._early_cancels[key] = op.reason
            else:
                self.store.signals.send(cancelled.run.owner, command_topic(*key))
        return cancelled.run, cancelled.made is not None

    async def recollected(self, snapshot: Snapshot) -> Snapshot:
        """A run with what it remembers of its thread. Raises `StoreUnavailable`."""
        return await recollected(self.store, snapshot)

    async def request_body(self, snapshot: Snapshot) -> str | None:
        """The JSON text of the last request to the model, made again from what is stored; None where it is
        not wanted, where there was none, and where the agent is gone."""
        if not snapshot.spec.options.include_request_body:
            return None
        agent = await self.agents.agent_of(snapshot)
        if agent is None:
            return None
        request = last_request(agent, snapshot, self.toolsets.tools_of(agent, snapshot.spec.options))
        if request is None:
            return None
        last = snapshot.steps[-1]
        asked = last.overrides.model if last.overrides is not None else None
        try:
            models = self._resolve(asked or agent)
        except ValueError:  # a model that a hook had chosen
            return None
        model = next((one for one in models if one.name == last.model), None)
        if model is None:
            return None
        structured = snapshot.spec.options.structured_output
        if structured is not None:
            request = as_sent(structured, request, model, last.schema_injected)
        return model.request_body(request)

    # ---- readers ----

    def ends_alone(self, key: RunKey) -> bool:
        """Whether a run is executed here and is to be cancelled when nobody follows it."""
        execution = self._active.get(key)
        return execution is not None and execution.spec.options.cancel_on_disconnect

    def cancel_soon(self, op: Cancel) -> None:
        """As `cancel`, in a task of the engine."""
        self._spawn(self._cancel(op))

    def follower_left(self, key: RunKey) -> None:
        """A reader stopped following a run."""
        self._followers.left(key)

    def followed_elsewhere(self, key: RunKey) -> None:
        """A reader in another process follows a run."""
        if key in self._active:
            self._followers.seen_elsewhere(key)
