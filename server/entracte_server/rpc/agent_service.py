"""AgentService: starts runs and takes decisions."""

from contextlib import ExitStack
from typing import Any

import msgspec

from entracte.v1 import agent_service_pb2 as pb
from entracte.v1 import generate_result_pb2, options_pb2, pending_call_pb2, run_pb2
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.ids import new_id
from entracte_server.domain.options import RunOptions
from entracte_server.domain.runs import Snapshot
from entracte_server.engine import auto_resume, decisions
from entracte_server.engine.auto_resume import Unanswered
from entracte_server.engine.decisions import Ref, Verdict
from entracte_server.engine.engine import Engine
from entracte_server.engine.reading import Reader
from entracte_server.engine.starting import Start, Started
from entracte_server.engine.stored_agents import Tree
from entracte_server.rpc import checks
from entracte_server.rpc.call import Context, current
from entracte_server.rpc.memory_options import thread_of
from entracte_server.rpc.messages import messages_from
from entracte_server.rpc.options import check_supported, options_from
from entracte_server.rpc.resources import decision_message, run_message
from entracte_server.rpc.results import result_message
from entracte_server.rpc.streaming import send
from entracte_server.rpc.toolset_options import toolsets_from
from entracte_server.rpc.version_options import version_choices
from entracte_server.store.base import Decided

RUN_ID_METADATA = "entracte-run-id"
LATER = frozenset({"TOOLSET_UNAVAILABLE", "WORKER_TOOL_UNKNOWN"})
"""Reasons for which a run cannot be started now that say nothing about the request."""

ANSWERING = frozenset({"memory", "auto_resume_suspended_tools", "run_id"})
"""The options of a message that may answer a run: that one has options of its own."""

MAX_REASON = 64 * 1024
MAX_NOTE = 4 * 1024


class AgentService:
    """See the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- starting ----

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """Start a run and wait until it rests."""
        start = await self._start(request)
        if (said := await self._answered(start, request.options)) is not None:
            return await self._answer(said, context)
        with Reader(self._engine, start.tenant, start.run_id) as reader:
            started = await self._started(start, context)
            if started.run.run_id != start.run_id:  # an earlier request chose another id
                return await self._joined(started)
            rested = await reader.until_rest(started.run)
        return await self._generated(rested, started.replayed)

    async def _joined(self, started: Started) -> pb.GenerateResponse:
        run = started.run
        with Reader(self._engine, run.tenant, run.run_id) as reader:
            rested = await reader.until_rest(await self._engine.store.get_run(run.tenant, run.run_id))
        return await self._generated(rested, True)

    async def _generated(self, snapshot: Snapshot, replayed: bool) -> pb.GenerateResponse:
        return pb.GenerateResponse(
            run=self._run(snapshot), result=await self._result(snapshot), replayed=replayed
        )

    async def Stream(self, request: pb.StreamRequest, context: Context) -> None:
        """Start a run and write its chunks until it rests."""
        start = await self._start(request)
        if (said := await self._answered(start, request.options)) is not None:
            await self._stream_answer(said, context)
            return
        with Reader(self._engine, start.tenant, start.run_id) as reader:
            started = await self._started(start, context)
            if started.run.run_id == start.run_id:
                await self._write(context, reader, started)
                return
        with Reader(self._engine, start.tenant, started.run.run_id) as reader:
            run = await self._engine.store.get_run(start.tenant, started.run.run_id)
            await self._write(context, reader, Started(run, replayed=True))

    async def _write(self, context: Context, reader: Reader, started: Started, *, fresh: bool = True) -> None:
        if started.replayed:
            await context.write(pb.StreamResponse(replayed=True))
        await send(
            context,
            reader.follow(started.run, fresh=fresh and not started.replayed),
            run_id=started.run.run_id,
            reader_timeout=self._engine.settings.reader_timeout,
        )

    async def _start(self, request: Any) -> Start:
        call = current.get()
        call.require("run")
        agent_id = checks.identifier("agent_id", request.agent_id)
        if not request.messages:
            raise invalid("messages", "at least one message is required")
        run_id = checks.run_id("options.run_id", request.options.run_id) or new_id()
        call.run_id = run_id
        check_supported(request.options)
        choices = version_choices(request.options)
        start = Start(
            tenant=call.principal.tenant,
            principal=call.principal.name,
            agent_id=agent_id,
            input=messages_from("messages", request.messages),
            options=RunOptions(memory=thread_of(request.options)),
            run_id=run_id,
            request=checks.request_key(request),
        )
        agents, drafts = self._engine.agents, "author" in call.principal.roles
        try:
            tree = await agents.choose(start.tenant, agent_id, choices, drafts=drafts)
        except Refusal as refusal:
            return msgspec.structs.replace(start, refusal=refusal)
        try:
            return await self._with_options(start, tree, request.options)
        except Refusal as refusal:
            # What is published now need not be what a request that is repeated began with.
            if refusal.reason not in LATER and not tree.versions:
                raise
            return msgspec.structs.replace(start, refusal=refusal)

    async def _with_options(self, start: Start, tree: Tree, options: options_pb2.GenerateOptions) -> Start:
        engine, agent = self._engine, tree.agent
        toolsets = toolsets_from(engine.app, agent, options)
        pinned = await engine.toolsets.pin(agent, toolsets, start.tenant)
        tools = engine.toolsets.server_tools(agent, toolsets, pinned)
        made = options_from(engine.app, agent, options, tools, toolsets, pinned)
        made = msgspec.structs.replace(made, versions=tree.versions)
        return msgspec.structs.replace(start, options=made, tree=tree)

    async def _started(self, start: Start, context: Context) -> Started:
        started = await self._engine.start(start)
        await self._send_run_id(started.run.run_id, context)
        return started

    async def _send_run_id(self, run_id: str, context: Context) -> None:
        current.get().run_id = run_id
        await context.send_initial_metadata(((RUN_ID_METADATA, run_id),))

    # ---- answering by a message ----

    async def _answered(
        self, start: Start, options: options_pb2.GenerateOptions
    ) -> Decided | Unanswered | None:
        """What became of a message that may answer what the run asks that has its thread; None where it is
        to start a run."""
        if not options.auto_resume_suspended_tools:
            return None
        if not options.HasField("memory"):
            raise invalid(
                "options.auto_resume_suspended_tools", "needs options.memory, the thread to answer on"
            )
        if start.request is not None:
            store, made = self._engine.store, await self._engine.store.find_request(start.request)
            if made is not None and made.decision_id:
                decision = await store.get_decision(start.tenant, made.decision_id)
                return Decided(await store.get_run(start.tenant, made.run_id), decision, made=made)
            if made is not None:
                return None
        holder = await auto_resume.parked_run(self._engine, start)
        if holder is None:
            return None
        current.get().require("decide")
        for descriptor, _ in options.ListFields():
            if descriptor.name not in ANSWERING:
                raise invalid(
                    f"options.{descriptor.name}",
                    f"leave it out: the message may answer the run {holder.run_id}, which has its own",
                )
        if options.memory.read_only:
            raise invalid(
                "options.memory.read_only",
                f"leave it out: the message may answer the run {holder.run_id}, and that writes",
            )
        return await auto_resume.answer(self._engine, start, holder)

    async def _answer(self, said: Decided | Unanswered, context: Context) -> pb.GenerateResponse:
        run = said.run
        await self._send_run_id(run.run_id, context)
        with Reader(self._engine, run.tenant, run.run_id) as reader:
            run = await self._engine.store.get_run(run.tenant, run.run_id)
            if isinstance(said, Unanswered):
                rested = await reader.until_rest(run)
            else:
                rested = await reader.until_rest(run, after=said.decision.sequence)
        response = await self._generated(rested, _is_replayed(said))
        if isinstance(said, Unanswered):
            response.result.auto_resume_error = said.error
        return response

    async def _stream_answer(self, said: Decided | Unanswered, context: Context) -> None:
        run = said.run
        await self._send_run_id(run.run_id, context)
        if isinstance(said, Unanswered):
            after, error = max(0, run.last_sequence - 1), said.error
        else:
            after, error = said.decision.sequence, ""
        answered = pb.AnsweredRun(run_id=run.run_id, after_sequence=after, auto_resume_error=error)
        await context.write(pb.StreamResponse(answered=answered, replayed=_is_replayed(said)))
        with Reader(self._engine, run.tenant, run.run_id, after=after) as reader:
            run = await self._engine.store.get_run(run.tenant, run.run_id)
            await self._write(context, reader, Started(run), fresh=False)

    # ---- deciding ----

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        """Answer a suspension."""
        if not request.HasField("resume_data"):
            raise invalid("resume_data", "is required; to answer with null, send the text null")
        data, _ = checks.json_value("resume_data", request.resume_data)
        return pb.ResumeResponse(**await self._decide(request, context, Verdict("resume", data=data)))

    async def Approve(self, request: pb.ApproveRequest, context: Context) -> pb.ApproveResponse:
        """Approve a call."""
        edited = None
        if request.HasField("edited_args"):
            edited, _ = checks.json_object("edited_args", request.edited_args, "EDITED_ARGS_INVALID")
        if request.args_digest and len(request.args_digest) != 32:
            raise invalid("args_digest", "a SHA-256 has 32 bytes")
        verdict = Verdict("approve", edited_args=edited, args_digest=request.args_digest)
        return pb.ApproveResponse(**await self._decide(request, context, verdict))

    async def Decline(self, request: pb.DeclineRequest, context: Context) -> pb.DeclineResponse:
        """Decline a call."""
        reason_json = None
        if request.HasField("reason_json"):
            reason_json, _ = checks.json_value("reason_json", request.reason_json)
        reason = checks.text("reason", request.reason, MAX_REASON)
        verdict = Verdict("decline", reason=reason, reason_json=reason_json)
        return pb.DeclineResponse(**await self._decide(request, context, verdict))

    async def SubmitToolResult(
        self, request: pb.SubmitToolResultRequest, context: Context
    ) -> pb.SubmitToolResultResponse:
        """Hand in what a tool returned."""
        which = request.WhichOneof("outcome")
        if which is None:
            raise invalid("outcome", "give result or error")
        if which == "error":
            verdict = Verdict("submit", error=checks.text("error", request.error, MAX_REASON))
        else:
            verdict = Verdict("submit", data=checks.json_value("result", request.result)[0])
        return pb.SubmitToolResultResponse(**await self._decide(request, context, verdict))

    async def _decide(self, request: Any, context: Context, verdict: Verdict) -> dict[str, Any]:
        """What the four verbs have in common."""
        call = current.get()
        call.require("decide")
        ref = _ref(request.call)
        tenant = call.principal.tenant
        verdict = Verdict(
            verdict.verb,
            edited_args=verdict.edited_args,
            args_digest=verdict.args_digest,
            reason=verdict.reason,
            reason_json=verdict.reason_json,
            data=verdict.data,
            error=verdict.error,
            comment=checks.text("comment", request.comment, MAX_NOTE),
            on_behalf_of=checks.text("on_behalf_of", request.on_behalf_of, MAX_NOTE),
        )
        with ExitStack() as stack:
            readers: list[Reader] = []

            def follow(run_id: str) -> None:
                readers.append(stack.enter_context(Reader(self._engine, tenant, run_id)))

            decided = await decisions.decide(
                self._engine,
                tenant=tenant,
                principal=call.principal.name,
                ref=ref,
                verdict=verdict,
                request=checks.request_key(request),
                found=follow if request.wait else None,
            )
            run, decision = decided.run, decided.decision
            call.run_id = run.run_id
            await context.send_initial_metadata(((RUN_ID_METADATA, run.run_id),))
            response: dict[str, Any] = {
                "decision": decision_message(decision),
                "replayed": decided.made is not None,
            }
            if not request.wait:
                return {**response, "run": run_message(run)}
            if decided.made is not None:  # what happened since then, this reader was not told
                follow(run.run_id)
                run = await self._engine.store.get_run(tenant, run.run_id)
            snapshot = await readers[-1].until_rest(run, after=decision.sequence)
        return {**response, "run": self._run(snapshot), "result": await self._result(snapshot)}

    # ---- what is shown ----

    def _run(self, snapshot: Snapshot) -> run_pb2.Run:
        return run_message(snapshot.run, snapshot.waiting, snapshot.spec.options.request_context)

    async def _result(self, snapshot: Snapshot) -> generate_result_pb2.GenerateResult:
        snapshot = await self._engine.recollected(snapshot)
        return result_message(snapshot, await self._engine.request_body(snapshot))


def _is_replayed(said: Decided | Unanswered) -> bool:
    return isinstance(said, Decided) and said.made is not None


def _ref(ref: pending_call_pb2.CallRef) -> Ref:
    pending = checks.identifier("call.pending_call_id", ref.pending_call_id, required=False)
    run_id = checks.identifier("call.run_id", ref.run_id, required=False)
    tool_call_id = checks.identifier("call.tool_call_id", ref.tool_call_id, required=False)
    if not pending and not run_id:
        raise invalid("call", "give pending_call_id, or run_id with or without tool_call_id")
    return Ref(pending, run_id, tool_call_id)
