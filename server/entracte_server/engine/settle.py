"""Settling the tool calls of one step: refuse, ask, execute, until each has an outcome or waits.

Calls that need nobody run at once, side by side; the others are announced and wait. A waiting call
is executed as soon as it is decided, whatever its siblings do. A call that delegates to a sub-agent runs
until that one's run has ended. The run parks when nothing can go on without people, in it and below it.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from entracte_server.agents import schemas
from entracte_server.agents.context import ToolContext
from entracte_server.agents.delegating import PREFIX, AgentTool
from entracte_server.agents.hooks import DelegationVerdict
from entracte_server.agents.remote import WorkerTool
from entracte_server.agents.schemas import InvalidValue
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.expiry import Expiry
from entracte_server.domain.ids import new_id
from entracte_server.domain.options import ClientTool
from entracte_server.domain.runs import CallRow, Outcome, PendingRow, RunSpec, StepRecord
from entracte_server.engine import delegation
from entracte_server.engine.configure import tools_in
from entracte_server.engine.execution import Came, Lost, Redefined
from entracte_server.engine.expiry import EXPIRED, expiry_of
from entracte_server.engine.outlet import Outlet
from entracte_server.engine.outside import OpenedWork
from entracte_server.engine.processor_calls import ProcessorFailed, Vetoed
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.tool_hooks import ToolCallHooks
from entracte_server.store.base import RunPatch

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution
    from entracte_server.engine.subrun import SubRun

_log = structlog.get_logger(__name__)

FAULTY = frozenset({"invalid-args", "unknown-tool", "not-executed"})
"""Codes of calls that never reached a tool."""


def args_digest(tool_name: str, args: str) -> bytes:
    """SHA-256 over the byte length of the tool name, a newline, the name and the arguments' text."""
    name = tool_name.encode()
    return hashlib.sha256(b"%d\n%b%b" % (len(name), name, args.encode())).digest()


def validate(tool: Tool | ClientTool, text: str) -> Arguments:
    """The arguments of a call. Raises `InvalidValue`."""
    if isinstance(tool, Tool):
        return tool.validate(text)
    value = json_text.parse(text)
    schemas.check(tool.input_schema, value)
    return Arguments(text, value)


class HandedOver(Exception):
    """Nothing of the run executes any more, and this process is to give it up."""


class Settlement:
    """Settles one step of one run. Owns the tasks of its tools and of the runs it delegated to.

    `faulty`: no call of the step could be used. `expired`: the call whose expiry fails the run, once
    there is one; then the step is settled as soon as no tool of it runs, and the rest stays as it is. The
    same holds when a processor stopped the run, or failed, at a result: `stopped`.
    """

    def __init__(self, run: "RunExecution", record: StepRecord) -> None:
        self._run = run
        self._record = record
        self._tools = tools_in(run.tools, record.overrides)
        chosen = record.overrides.tool_choice if record.overrides is not None else None
        self._may_call = (chosen or run.tool_choice).mode != "none"
        self._hooks = ToolCallHooks(run)
        processing = run.processing
        self._processing = processing if processing is not None and processing.has_tool_results else None
        self._ready: deque[tuple[CallRow, Tool, Arguments]] = deque()
        self._tasks: dict[asyncio.Task[Came], str] = {}
        self._asking: dict[asyncio.Task[Outcome | None], tuple[CallRow, Tool, Arguments]] = {}
        self._delegated: dict[str, RunSpec] = {}
        """What sub-agents are asked, by the call, until they begin."""
        self._wake: asyncio.Future[None] | None = None
        self._verdicts: dict[str, DelegationVerdict] = {}
        """What hooks want besides the results of sub-agents, by the call, until it has its outcome."""
        self.faulty = False
        self.expired: CallRow | None = None
        self.stopped: Vetoed | ProcessorFailed | None = None

    def wake(self) -> None:
        """There is something in the run's inbox."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @property
    def executing(self) -> bool:
        """Whether a tool executes in this process now, or a hook of one; also below."""
        return bool(self._asking) or any(
            call_id not in self._run.work if (child := self._child(call_id)) is None else child.executing
            for call_id in self._tasks.values()
        )

    @property
    def _delegating(self) -> bool:
        """Whether a run below has not given itself up yet."""
        children = map(self._child, self._tasks.values())
        return any(child is not None and not child.is_idle for child in children)

    @property
    def busy(self) -> bool:
        """Whether anything goes on without people: a tool, a hook, or a run below."""
        return bool(self._asking) or self._busy_calls > 0

    @property
    def _busy_calls(self) -> int:
        children = map(self._child, self._tasks.values())
        return sum(child is None or not child.is_idle for child in children)

    def _child(self, call_id: str) -> "SubRun | None":
        return self._run.children.get(call_id)

    def _ended(self, _: asyncio.Task[Any]) -> None:
        self.wake()

    async def settle(self) -> bool:
        """Until every call of the step has an outcome (False), or the run parked (True)."""
        try:
            calls = self._run.calls_of(self._record.step)
            if failing := [k for k in calls if k.outcome is not None and k.outcome.code == EXPIRED]:
                self.expired, calls = failing[0], [k for k in failing if k.state == "decided"]
            for call in calls:
                self._take_up(call)
            return await self._until_settled()
        finally:
            await self._end_tasks()

    def _take_up(self, call: CallRow) -> None:
        """A call as it is found when the step begins or is gone on with."""
        if call.state == "requested":
            self._classify(call)
        elif call.state == "decided":
            self._apply(call)
        elif call.state == "started":
            if call.call_id in self._run.entering:
                self._apply(call)
            else:
                self._recover(call)

    async def _until_settled(self) -> bool:
        run = self._run
        while True:
            while run.inbox:
                call = run.inbox.popleft()
                known = run.calls[call.call_id]
                if known.state == "waiting" and known.round == call.round:
                    self._apply(call)
            if self.expired is not None or self.stopped is not None:
                self._ready.clear()
                for child in run.children.values():  # they end as soon as no tool of theirs runs
                    child.hand_over()
                if not self.busy:
                    return False
            if not run.leaving:
                await self._start()
            elif not (self.executing or self._delegating):
                raise HandedOver
            if run.inbox:  # it came meanwhile
                continue
            if self.busy:
                run.log.flush()
                await self.event()
                continue
            if self._ready:
                continue
            waits = any(call.state == "waiting" for call in run.calls_of(self._record.step))
            if not waits and not self._tasks:
                calls = run.calls_of(self._record.step)
                await self._hooks.end()
                self.faulty = bool(calls) and all(
                    call.outcome is not None and call.outcome.code in FAULTY for call in calls
                )
                return False
            await self._hooks.end()
            if await run.park():
                return True
            for call in await run.decided_calls():
                run.inbox.append(call)

    async def event(self) -> None:
        """Until a tool ends, a decision comes or a run below rests; takes in the tools that ended."""
        if not any(task.done() for task in (*self._tasks, *self._asking)):
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        for task in [t for t in self._tasks if t.done()]:
            call = self._run.calls[self._tasks.pop(task)]
            try:
                came_to = task.result()
            except (Vetoed, ProcessorFailed) as stopped:
                self.stopped = self.stopped or stopped
            except HandedOver:  # a run below, because this one is to be handed over
                continue
            else:
                self._came_to(call, came_to)
        for asked in [t for t in self._asking if t.done()]:
            call, tool, arguments = self._asking.pop(asked)
            if (outcome := asked.result()) is not None:
                self._run.entering.discard(call.call_id)
                self._settled(call, outcome)
            else:
                self._ready.append((call, tool, arguments))

    async def _end_tasks(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._asking]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # what ends the others as well is not reported as forgotten
        self._tasks.clear()
        self._asking.clear()
        await self._hooks.cancel()

    # ---- what a call needs ----

    def _tool_of(self, call: CallRow) -> Tool | ClientTool | None:
        if call.definition is not None:
            return self._run.toolsets.remote(call.definition)
        return self._tools.get(call.tool_name)

    def _classify(self, call: CallRow) -> None:
        run = self._run
        if call.provider_executed:
            run.update(msgspec.structs.replace(call, state="done"))
            return
        if self._record.reason == "length":
            self._refuse(
                call,
                "not-executed",
                "The answer was cut by the token limit, so this call was not executed.",
            )
            return
        if not self._may_call:
            self._refuse(call, "not-executed", "Tools may not be called in this run.")
            return
        tool = self._tool_of(call)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            self._refuse(
                call, "unknown-tool", f"There is no tool {call.tool_name!r}. Available tools: {names}."
            )
            return
        if call.args is None:
            self._refuse(
                call,
                "invalid-args",
                f"The arguments of {call.tool_name} are not a JSON object: "
                f"{call.args_error or 'unreadable'}. The tool was not executed.",
            )
            return
        # A reviewer's edit stays, also where the tool was redefined and the call is shown again.
        arguments = self._validated(call, tool, (call.run_args if call.edited else None) or call.args)
        if arguments is None:
            return
        if call.run_args is not None or arguments.text != call.args:
            call = msgspec.structs.replace(call, run_args=arguments.text)
        if not call.approved and run.approving.needed(call.tool_name, tool, arguments, run.request_context):
            self._open(call, "approval", arguments.text)
        else:
            self._go(call, tool, arguments)

    def _validated(self, call: CallRow, tool: Tool | ClientTool, text: str) -> Arguments | None:
        try:
            return validate(tool, text)
        except (InvalidValue, json_text.InvalidJson) as error:
            self._refuse(
                call,
                "invalid-args",
                f"The arguments do not fit the schema of {call.tool_name}: {error}. "
                "The tool was not executed.",
            )
            return None

    def _go(self, call: CallRow, tool: Tool | ClientTool, arguments: Arguments) -> None:
        """Nothing stands in the way of the call any more."""
        if isinstance(tool, Tool):
            self._run.update(call)
            # One that was entered before has been asked about; one that its decision marked has not.
            entered = call.state == "started" and call.call_id not in self._run.entering
            entered = entered or bool(call.child_run_id)
            if entered or not (self._hooks.ask_before or isinstance(tool, AgentTool)):
                self._ready.append((call, tool, arguments))
                return
            task = asyncio.create_task(self._before(call, tool, arguments), name="hook")
            task.add_done_callback(self._ended)
            self._asking[task] = (call, tool, arguments)
        else:
            self._open(call, "client-tool", arguments.text)

    async def _before(self, call: CallRow, tool: Tool, arguments: Arguments) -> Outcome | None:
        """What comes of a call that is not to be made; None where it is."""
        outcome = await self._hooks.before(call, arguments) if self._hooks.ask_before else None
        if outcome is None and isinstance(tool, AgentTool):
            asked = await delegation.asked(self._run, call, tool, arguments)
            if isinstance(asked, Outcome):
                return asked
            self._delegated[call.call_id] = asked
        return outcome

    def _apply(self, call: CallRow) -> None:
        """A call that was decided."""
        run = self._run
        run.awake()
        call = run.shown(call)
        if call.outcome is not None:
            if self._processing is not None and self._processing.looks_at(call.outcome):
                self._run.update(call)
                self._work(call, self._processing.tool_result(call, call.outcome))
            else:
                self._settled(call, call.outcome)
            return
        if call.redefined:
            self._classify(msgspec.structs.replace(call, redefined=False))
            return
        tool = self._tool_of(call)
        if tool is None:
            self._refuse(call, "unknown-tool", f"The tool {call.tool_name!r} does not exist any more.")
            return
        arguments = self._validated(call, tool, call.run_args or call.args or "{}")
        if arguments is not None:
            self._go(call, tool, arguments)

    def _recover(self, call: CallRow) -> None:
        """A call whose tool was running when its process died."""
        call = self._run.shown(call)
        tool = self._tool_of(call)
        args = call.run_args or call.args or "{}"
        if call.child_run_id:  # it goes on where it stood
            agent = self._run.family.enter(self._run, call).agent
            self._go(call, AgentTool(call.tool_name.removeprefix(PREFIX), agent), Arguments(args, None))
            return
        if isinstance(tool, AgentTool):  # it was approved, and nothing has begun
            self._run.entering.add(call.call_id)
        # What a worker was given is found, and what it was not is given to one.
        if isinstance(tool, ClientTool | AgentTool | WorkerTool) or (tool is not None and tool.idempotent):
            arguments = self._validated(call, tool, args)
            if arguments is not None:
                self._go(call, tool, arguments)
            return
        self._open(call, "recovery", args)

    # ---- executing ----

    async def _start(self) -> None:
        """Enter as many of the ready tools as may run at once; what is entered is durable first."""
        run = self._run
        starting: list[tuple[CallRow, Tool, Arguments]] = []
        durable = True
        while self._ready and self._busy_calls + len(starting) < run.concurrency:
            call, tool, arguments = self._ready.popleft()
            if isinstance(tool, AgentTool) and not call.child_run_id:
                call = run.family.begin(run, call, tool.agent, self._delegated.pop(call.call_id))
                run.update(call)
                run.entering.add(call.call_id)
                durable = False
            if call.state != "started":
                call = msgspec.structs.replace(call, state="started", key=call.key or new_id())
                run.update(call)
                run.entering.add(call.call_id)
                durable = False
            if isinstance(tool, WorkerTool):
                fresh = call.call_id in run.entering
                made = run.services.outside.make(run, call, tool, arguments, self._record)
                if isinstance(made, Outcome):
                    run.entering.discard(call.call_id)
                    self._settled(call, made)
                    continue
                run.work[call.call_id] = OpenedWork(made.work_id, fresh)
                run.log.stage(work=(made,))
                durable = False
            starting.append((call, tool, arguments))
        if not starting:
            return
        run.log.check()
        if not durable:
            await run.log.commit()
            run.log.check()
        for call, tool, arguments in starting:
            run.entering.discard(call.call_id)
            if isinstance(tool, AgentTool):
                self._work(call, self._delegate(call, run.family.enter(run, call)))
                continue
            context = self._context(call, tool)
            if isinstance(context, Outcome):
                self._settled(call, context)
                continue
            self._work(call, self._execute(call, tool, arguments, context))

    def _work(self, call: CallRow, work: Coroutine[Any, Any, Came]) -> None:
        task = asyncio.create_task(work, name=f"call:{call.tool_name}")
        task.add_done_callback(self._ended)
        self._tasks[task] = call.call_id

    async def _execute(
        self, call: CallRow, tool: Tool, arguments: Arguments, context: ToolContext[Any]
    ) -> Came:
        memory = self._run.memory
        outcome: Came | None = None if memory is None else await memory.refusal(tool, arguments, call)
        if outcome is None and isinstance(tool, WorkerTool):
            outcome = await self._run.services.outside.come(self._run, call, tool, arguments, context)
        elif outcome is None:
            outcome = await self._run.services.tools.run(tool, arguments, context)
        processing = self._processing
        if processing is not None and isinstance(outcome, Outcome) and processing.looks_at(outcome):
            return await processing.tool_result(call, outcome)
        return outcome

    async def _delegate(self, call: CallRow, child: "SubRun") -> Came:
        ending = await child.execute()
        outcome, verdict = await delegation.concluded(self._run, call, child, ending)
        if verdict.feedback or verdict.bail:
            self._verdicts[call.call_id] = verdict
        if self._processing is not None and self._processing.looks_at(outcome):
            return await self._processing.tool_result(call, outcome)
        return outcome

    def _context(self, call: CallRow, tool: Tool) -> ToolContext[Any] | Outcome:
        run = self._run
        answer: Any = None
        if call.resumed:
            try:
                answer = tool.parse_resume(call.resume_data or "null")
            except (InvalidValue, json_text.InvalidJson) as error:
                return Outcome("error", f"The answer does not fit the tool any more: {error}", "exception")
        outlet = Outlet(run, call.call_id, call.tool_name)
        return ToolContext(
            run_id=run.log.key[1],
            tool_call_id=call.call_id,
            tool_name=call.tool_name,
            agent_id=run.agent.id,
            idempotency_key=call.key,
            request_context=run.request_context,
            thread_id=run.home.thread_id,
            resource_id=run.home.resource_id,
            resumed=call.resumed,
            expired=call.defaulted,
            resume_data=answer,
            suspend_payload=(
                json_text.parse_stored(call.suspend_payload) if call.suspend_payload is not None else None
            ),
            state=json_text.parse_stored(call.tool_state) if call.tool_state else None,
            resume_schema=tool.resume_schema,
            emit=outlet.write,
            drain=outlet.drain,
            approved=call.approved,
        )

    def _came_to(self, call: CallRow, outcome: Came) -> None:
        if isinstance(outcome, Outcome):
            if self._run.memory is not None:
                self._run.memory.came_to(call, outcome)
            self._settled(call, outcome)
            self._hooks.after(self._run.calls[call.call_id])
            return
        if self.expired is not None:  # nobody is to be asked any more
            return
        if isinstance(outcome, Lost):
            self._open(call, "recovery", call.run_args or call.args or "{}")
            return
        if isinstance(outcome, Redefined):  # under its own policy, and not under what was agreed to
            changed = msgspec.structs.replace(call, definition=outcome.definition, approved=False)
            self._classify(changed)
            return
        tool = self._tool_of(call)
        schema = outcome.resume_schema
        if schema is None and isinstance(tool, Tool):
            schema = tool.resume_schema
        call = msgspec.structs.replace(
            call,
            suspend_payload=outcome.payload,
            tool_state=outcome.state,
            resumed=False,
            resume_data=None,
            defaulted=False,
        )
        self._open(call, "suspension", call.run_args or call.args or "{}", schema, outcome.expiry)

    # ---- outcomes ----

    def _refuse(self, call: CallRow, code: str, message: str) -> None:
        self._settled(call, Outcome("error", json_text.scrub(message), code))

    def _settled(self, call: CallRow, outcome: Outcome) -> None:
        run = self._run
        args = call.run_args if call.edited else call.args
        chunk: c.Payload
        if outcome.kind == "result":
            chunk = c.ToolResult(call.call_id, call.tool_name, args, outcome.value)
        elif outcome.kind == "denied":
            chunk = c.ToolOutputDenied(call.call_id, call.tool_name, args, outcome.value, outcome.reason_json)
        else:
            chunk = c.ToolError(call.call_id, call.tool_name, args, outcome.value, outcome.code)
        run.log.emit(chunk)
        call = run.family.leave(run, call)
        if (verdict := self._verdicts.pop(call.call_id, None)) is not None:
            call = msgspec.structs.replace(call, feedback=verdict.feedback, bail=verdict.bail)
        run.update(msgspec.structs.replace(call, state="done", outcome=outcome))
        if call.usage is not None:
            run.log.stage(patch=RunPatch(usage=run.total()))
        if outcome.code == EXPIRED:
            self.expired = run.calls[call.call_id]

    def _open(
        self,
        call: CallRow,
        kind: c.PendingKind,
        args: str,
        schema: str | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        """Make the call wait, and announce it. `expiry` is what the tool said with its question."""
        run = self._run
        tool = self._tool_of(call)
        call = msgspec.structs.replace(call, state="waiting", round=call.round + 1)
        digest = args_digest(call.tool_name, args)
        now = now_ms()
        expires = expiry_of(
            kind,
            call.tool_name,
            tool,
            agent=run.agent,
            asked=run.spec.options.pending_call_expiry,
            question=expiry,
            resume_schema=schema,
        )
        expire_time = None if expires is None else now + expires[0]
        pending = PendingRow(
            tenant=run.log.key[0],
            pending_call_id=new_id(),
            run_id=run.log.key[1],
            call_id=call.call_id,
            kind=kind,
            tool_name=call.tool_name,
            args=args,
            args_digest=digest,
            create_time=now,
            agent_id=run.agent.id,
            round=call.round,
            suspend_payload=call.suspend_payload if kind == "suspension" else None,
            resume_schema=schema,
            tool_description=tool.description if tool is not None else "",
            tool_digest=tool.digest if isinstance(tool, Tool) else b"",
            agent_path=run.path,
            thread_id=run.home.thread_id,
            resource_id=run.home.resource_id,
            expire_time=expire_time or 0,
            on_expiry=None if expires is None else expires[1],
            needs=run.needs,
        )
        if kind == "approval":
            run.log.emit(
                c.ToolCallApproval(
                    pending.pending_call_id,
                    call.call_id,
                    call.tool_name,
                    args,
                    digest,
                    expire_time=expire_time,
                )
            )
        else:
            run.log.emit(
                c.ToolCallSuspended(
                    pending_call_id=pending.pending_call_id,
                    kind=kind,
                    tool_call_id=call.call_id,
                    tool_name=call.tool_name,
                    args=args,
                    args_digest=digest,
                    suspend_payload=pending.suspend_payload,
                    resume_schema=schema,
                    expire_time=expire_time,
                )
            )
        run.opened(pending)
        run.update(call)
