"""Calls that workers execute, as the runs of this process see them: made into work, waited for, heard.

The work is a row that is written with the call's start. Whoever owns the run waits for what becomes of it,
so nothing is lost with a process, and nothing that waits keeps a process from handing its runs over. What
others tell is a hint; a look once a second is the truth.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from entracte_server.agents.context import ToolContext
from entracte_server.agents.remote import WorkerTool
from entracte_server.agents.tools import Arguments
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.runs import CallRow, Outcome, StepRecord
from entracte_server.domain.work import Answer, NewWork, ToolTask, WorkSight, work_id
from entracte_server.engine.execution import MAX_MESSAGE, Came, Lost, Parked
from entracte_server.engine.outlet import MAX_UNWRITTEN
from entracte_server.engine.settings import EngineSettings
from entracte_server.store.base import Store, StoreError
from entracte_server.telemetry.base import Telemetry

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

_log = structlog.get_logger(__name__)

MAX_TASK = 12 * 1024 * 1024
"""The largest call that is given to a worker, in bytes."""

PAGE = 200
"""How much work is looked at in one read."""

MAX_EARLY = 1000

UNAVAILABLE = "unavailable"
"""The code of a call that no worker took."""


class OpenedWork:
    """Work of a call that has started. `fresh`: nobody can have answered it before it is committed. `heard`:
    its run knows what it came to."""

    __slots__ = ("fresh", "heard", "work_id")

    def __init__(self, work_id: str, fresh: bool) -> None:
        self.work_id = work_id
        self.fresh = fresh
        self.heard = False


class _Wait:
    """One call that waits."""

    def __init__(self, run: "RunExecution", call: CallRow, work_id: str) -> None:
        self.run = run
        self.call = call
        self.work_id = work_id
        self.position = 0
        self.came: asyncio.Future[WorkSight] = asyncio.get_running_loop().create_future()

    def take(self, sight: WorkSight) -> bool:
        """Take in how the work stands; says whether to look again at once. What the tool wrote is written
        to the log, in one commit with the note that it is there."""
        for output in sight.outputs:
            if output.position <= self.position:
                continue
            if self.run.log.unwritten > MAX_UNWRITTEN:  # the next look goes on
                return False
            self.position = output.position
            self.run.log.stage(taken_output=((self.work_id, output.position),))
            payload: c.Payload = (
                c.Custom(output.name, output.value, output.id)
                if output.name
                else c.ToolOutput(self.call.call_id, self.call.tool_name, output.value)
            )
            self.run.write_out(self.call.call_id, payload)
        if sight.outputs:
            return True
        if sight.state not in ("open", "given"):
            self.end(sight)
        return False

    def end(self, sight: WorkSight) -> None:
        """It is known what came of it."""
        if not self.came.done():
            self.came.set_result(sight)


class OutsideWork:
    """See the module. Owns the task that looks."""

    def __init__(self, store: Store, settings: EngineSettings, telemetry: Telemetry) -> None:
        self._store = store
        self._settings = settings
        self._telemetry = telemetry
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._hints: dict[tuple[str, str], None] = {}
        self._early: dict[tuple[str, str], None] = {}
        """What was told of work that was not waited for yet."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    # ---- making work ----

    def make(
        self, run: "RunExecution", call: CallRow, tool: WorkerTool, arguments: Arguments, record: StepRecord
    ) -> NewWork | Outcome:
        """The work for a call, or what comes of one that is too large for a worker."""
        home, settings = run.home, self._settings
        task = ToolTask(
            name=tool.remote,
            version=tool.worker.version,
            run_id=home.run_id,
            agent_id=run.agent.id,
            tool_call_id=call.call_id,
            args=arguments.text,
            idempotency_key=call.key,
            thread_id=home.thread_id,
            resource_id=home.resource_id,
            request_context=run.spec.options.request_context,
            resumed=call.resumed,
            resume_data=call.resume_data,
            suspend_payload=call.suspend_payload,
            expired=call.defaulted,
            state=call.tool_state,
        )
        if (size := task.size) > MAX_TASK:
            return Outcome(
                "error",
                f"The call of {tool.name} is too large for a worker: {size} bytes, at most {MAX_TASK} are "
                "allowed, with its arguments, state and answer.",
                "not-executed",
            )
        path = tuple(element.tool_call_id for element in run.path)
        name = work_id(home.run_id, path, call.step, record.attempt, "tool", call.call_id, call.round)
        limit = tool.timeout if tool.timeout is not None else settings.tool_timeout
        return NewWork(
            name,
            call.call_id,
            tool.worker.target,
            task,
            timeout=int(limit * 1000),
            wait=int(settings.tool_worker_wait * 1000),
            queue=int(settings.tool_worker_queue * 1000),
            idempotent=tool.idempotent,
        )

    # ---- waiting for it ----

    async def come(
        self,
        run: "RunExecution",
        call: CallRow,
        tool: WorkerTool,
        arguments: Arguments,
        context: ToolContext[Any],
    ) -> Came:
        """What becomes of a call whose work is written. Never raises but for cancellation of the caller,
        which takes nothing back: the work stays."""
        work = run.work[call.call_id]
        key = (run.log.key[0], work.work_id)
        wait = self._waits[key] = _Wait(run, call, work.work_id)
        if not work.fresh or key in self._early:
            self._early.pop(key, None)
            self.look(*key)
        try:
            with self._telemetry.tool(tool, arguments, context) as execution:
                sight = await wait.came
                work.heard = True
                return execution.came_to(self._came(tool, sight))
        finally:
            if self._waits.get(key) is wait:
                del self._waits[key]

    def _came(self, tool: WorkerTool, sight: WorkSight) -> Came:
        if sight.answer is not None:
            return self._answered(tool, sight.answer)
        if sight.state == "expired":
            return Outcome("error", f"The tool {tool.name} did not end within its time.", "timeout")
        if sight.state == UNAVAILABLE:
            message = f"No worker executes {tool.name} now; the call was not made."
            return Outcome("error", message, UNAVAILABLE)
        return Lost()

    def _answered(self, tool: WorkerTool, answer: Answer) -> Came:
        if answer.kind == "suspended":
            return Parked(answer.value, answer.resume_schema, answer.state)
        value = answer.value or ""
        if answer.kind == "result":
            return Outcome("result", value)
        _log.info("tool_failed", tool=tool.name, error="worker")
        if self._settings.tool_errors == "generic":
            return Outcome("error", f"The tool {tool.name} failed.", "exception")
        return Outcome("error", json_text.scrub(value)[:MAX_MESSAGE], "exception")

    # ---- hearing of it ----

    def answered(self, tenant: str, work_id: str, answer: Answer) -> None:
        """It is known here what work came to, and that nothing else is to be read of it."""
        wait = self._waits.get((tenant, work_id))
        if wait is not None:
            wait.end(WorkSight(tenant, work_id, "answered", answer))
        else:
            self._told_early(tenant, work_id)

    def look(self, tenant: str, work_id: str) -> None:
        """Something happened to work that may be waited for here."""
        if (tenant, work_id) not in self._waits:
            self._told_early(tenant, work_id)
        elif not self._closed:
            self._hints[tenant, work_id] = None
            self._begin()

    def _told_early(self, tenant: str, work_id: str) -> None:
        if len(self._early) >= MAX_EARLY:
            self._early.clear()  # it is looked at once a second as well
        self._early[tenant, work_id] = None

    def look_at_all(self) -> None:
        """Look at all that is waited for."""
        if self._waits and not self._closed:
            self._hints.update(dict.fromkeys(self._waits))
            self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="work-looks")

    async def _look(self) -> None:
        while self._hints:
            keys = list(self._hints)[:PAGE]
            for key in keys:
                del self._hints[key]
            waits = {key: self._waits[key] for key in keys if key in self._waits}
            try:
                seen = await self._store.see_work([(*key, wait.position) for key, wait in waits.items()])
            except StoreError as error:  # the next look finds it
                _log.warning("work_not_seen", error=str(error))
                return
            for sight in seen:
                key = (sight.tenant, sight.work_id)
                if waits.pop(key).take(sight):
                    self._hints[key] = None
            for key, wait in waits.items():  # there is no such work any more
                wait.end(WorkSight(*key, "closed"))

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._hints.clear()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
