"""Plays a scenario against a real server, through its RPCs, and checks what holds for every run.

Whatever is played: sequences are 1, 2, 3... over all phases; a stream ends with `finish`; what was
streamed is what `WatchRun` replays; `Generate`, a waited decision and `GetRun` give the same result;
a refused decision changes nothing; and no model call ever sees a tool call without exactly one result.
"""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from entracte.v1 import agent_service_pb2 as pb
from entracte.v1 import (
    agent_service_pb2_grpc,
    chunk_pb2,
    generate_result_pb2,
    message_pb2,
    options_pb2,
    pending_call_pb2,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
)
from entracte.v1.json_pb2 import Json
from entracte_server import Agent, App, Hook, ModelSettings, Toolset
from entracte_server.agents.scorers import CodeScorer
from entracte_server.domain import messages as m
from entracte_server.models import Model, ModelRequest
from entracte_server.testing import ScriptedModel, serve
from tests.scenarios import lines
from tests.scenarios.recording import Course, Phase
from tests.scenarios.tools import Log, Make

Verb = Literal["approve", "decline", "resume", "submit"]
Mode = Literal["stream", "generate"]
When = Callable[["Conversation"], bool]

AGENT = "agent-1"


def text_input(*texts: str) -> list[message_pb2.Message]:
    """Messages of a user."""
    return [user_message(text) for text in texts]


def user_message(text: str) -> message_pb2.Message:
    """One message of a user."""
    return said(message_pb2.ROLE_USER, text)


def said(role: message_pb2.Role.ValueType, text: str) -> message_pb2.Message:
    """A message of one text."""
    return message_pb2.Message(
        role=role, parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text=text))]
    )


@dataclass(frozen=True)
class Start:
    """Starts a run. `cancel_when` cancels it as soon as it holds."""

    input: Sequence[message_pb2.Message] = field(default_factory=lambda: text_input("hi"))
    cancel_when: When | None = None


@dataclass(frozen=True)
class Decide:
    """Decides a waiting call: the one of the id `call`, or the only one there is. `new_process` starts
    another server on the same database first. `run_id` in place of the run's own."""

    verb: Verb
    data: Any = None
    call: str = ""
    reason: str = ""
    wait: bool = False
    new_process: bool = False
    run_id: str | None = None
    edited: Any = None
    cancel_when: When | None = None


Step = Start | Decide


@dataclass(frozen=True)
class Setup:
    """What a scenario needs: tools, the caller's options, and what the agent itself says."""

    tools: Make
    options: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = "SYS"
    max_retries: int | None = None
    fallback: Sequence[Sequence[Any]] | None = None
    """The script of a second model."""
    toolsets: Callable[[Log], Sequence[Toolset]] | None = None
    """Those of the app."""
    hooks: Sequence[Hook] = ()
    scorers: Sequence[CodeScorer] = ()


@dataclass
class Answered:
    """What one call came to."""

    chunks: list[chunk_pb2.Chunk] = field(default_factory=list)
    result: generate_result_pb2.GenerateResult | None = None
    refusal: str = ""


class Conversation:
    """One play: a server, a model with its script, one run. Use as a context manager."""

    def __init__(self, setup: Setup, script: Sequence[Any], folder: pathlib.Path) -> None:
        self.log = Log()
        self.model = ScriptedModel(script)
        self.chunks: list[chunk_pb2.Chunk] = []
        """Everything that was streamed so far."""
        self.run_id = ""
        self.decisions = 0
        self._setup = setup
        self._other = ScriptedModel(setup.fallback) if setup.fallback else None
        self._store = folder / "entracte.db"
        self._server = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Conversation":
        await self._serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.aclose()

    @property
    def requests(self) -> list[ModelRequest]:
        """What the models were asked, the first model's first."""
        return [*self.model.requests, *(self._other.requests if self._other else ())]

    def _app(self) -> App:
        models: list[str | Model] = [self.model]
        if self._other is not None:
            models.append(self._other)
        agent = Agent(
            id=AGENT,
            model=models,
            instructions=self._setup.instructions,
            tools=self._setup.tools(self.log),
            model_settings=ModelSettings(max_retries=self._setup.max_retries),
        )
        toolsets = self._setup.toolsets(self.log) if self._setup.toolsets is not None else ()
        return App(agents=[agent], toolsets=toolsets, hooks=self._setup.hooks, scorers=self._setup.scorers)

    async def _serve(self) -> None:
        server = await self._server.enter_async_context(
            serve(self._app(), store=self._store, reflection=False)
        )
        self.address = server.address
        channel = await self._server.enter_async_context(grpc.aio.insecure_channel(server.address))
        self.agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.runs = run_service_pb2_grpc.RunServiceStub(channel)

    async def restart(self) -> None:
        """Stop the server and start another one on the same database, with new tools."""
        await self._server.aclose()
        self._server = contextlib.AsyncExitStack()
        await self._serve()

    # ---- calls ----

    async def take(self, step: Step, mode: Mode) -> Answered:
        """Make one call and see what it comes to."""
        waits = mode == "generate" or (isinstance(step, Decide) and step.wait)
        seen = len(self.chunks)
        before = await self.get() if self.run_id and isinstance(step, Decide) else None
        cancelling = asyncio.create_task(self._cancel(step.cancel_when)) if step.cancel_when else None
        try:
            if isinstance(step, Start):
                answered = await self._start(step, mode)
            else:
                answered = await self._decide(step, waits)
        except grpc.aio.AioRpcError as failure:
            answered = Answered(refusal=refusal_of(failure))
            if before is not None:
                assert await self.get() == before, "a refused decision changes nothing"
        finally:
            if cancelling is not None:
                await cancelling
        if not answered.refusal:
            await self._look(answered, seen)
        return answered

    async def _start(self, step: Start, mode: Mode) -> Answered:
        options = options_pb2.GenerateOptions(**self._setup.options)
        if step.cancel_when and mode == "generate":
            # A unary call of this client library shows its metadata only when it is over.
            options.run_id = self.run_id = "chosen"
        fields: dict[str, Any] = {"agent_id": AGENT, "messages": step.input, "options": options}
        if mode == "generate":
            call = self.agents.Generate(pb.GenerateRequest(**fields))
            self.run_id = await _run_id(call)
            return Answered(result=(await call).result)
        stream = self.agents.Stream(pb.StreamRequest(**fields))
        self.run_id = await _run_id(stream)
        return Answered(chunks=await self._follow(stream))

    async def _decide(self, step: Decide, waits: bool) -> Answered:
        if step.new_process:
            await self.restart()
        request = self._request(step, await self._named(step), waits)
        response = await self._call(request)
        self.decisions += 1
        if waits:
            return Answered(result=response.result)
        return Answered(chunks=await self.watch(response.run.last_sequence))

    async def _named(self, step: Decide) -> pending_call_pb2.CallRef:
        """The call that is meant. The run's id alone names it while nothing was decided; after that it
        is refused, because it could be a late answer to an earlier question."""
        run_id = self.run_id if step.run_id is None else step.run_id
        ref = pending_call_pb2.CallRef(run_id=run_id, tool_call_id=step.call)
        waiting = (await self.get()).run.pending_calls
        if step.call or step.run_id is not None or not self.decisions or not waiting:
            return ref
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self._call(self._request(step, ref, False))
        assert refusal_of(refused.value) == "FAILED_PRECONDITION PENDING_CALL_AMBIGUOUS"
        return pending_call_pb2.CallRef(pending_call_id=waiting[0].pending_call_id)

    def _request(self, step: Decide, ref: pending_call_pb2.CallRef, waits: bool) -> Any:
        match step.verb:
            case "approve":
                edited = None if step.edited is None else Json(text=lines.compact(step.edited))
                return pb.ApproveRequest(call=ref, wait=waits, edited_args=edited)
            case "decline":
                return pb.DeclineRequest(call=ref, reason=step.reason, wait=waits)
            case "resume":
                data = Json(text=lines.compact(step.data))
                return pb.ResumeRequest(call=ref, resume_data=data, wait=waits)
            case "submit":
                if step.reason:
                    return pb.SubmitToolResultRequest(call=ref, error=step.reason, wait=waits)
                result = Json(text=lines.compact(step.data))
                return pb.SubmitToolResultRequest(call=ref, result=result, wait=waits)

    async def _call(self, request: Any) -> Any:
        methods: dict[type, Callable[[Any], Awaitable[Any]]] = {
            pb.ApproveRequest: self.agents.Approve,
            pb.DeclineRequest: self.agents.Decline,
            pb.ResumeRequest: self.agents.Resume,
            pb.SubmitToolResultRequest: self.agents.SubmitToolResult,
        }
        return await methods[type(request)](request)

    async def until(self, holds: When) -> None:
        """Wait until a condition holds that something else brings about."""
        async with asyncio.timeout(10):
            while not holds(self):  # noqa: ASYNC110 - any condition, over what others do
                await asyncio.sleep(0.005)

    async def _cancel(self, when: When) -> None:
        await self.until(lambda talk: talk.run_id != "" and when(talk))
        await self.runs.CancelRun(run_service_pb2.CancelRunRequest(run_id=self.run_id, wait=True))

    async def get(self) -> run_service_pb2.GetRunResponse:
        """The run as it is now."""
        return await self.runs.GetRun(run_service_pb2.GetRunRequest(run_id=self.run_id))

    async def watch(self, after: int) -> list[chunk_pb2.Chunk]:
        """Follow the run from a position until it rests."""
        return await self._follow(
            self.runs.WatchRun(run_service_pb2.WatchRunRequest(run_id=self.run_id, after_sequence=after))
        )

    async def _follow(self, stream: Any) -> list[chunk_pb2.Chunk]:
        chunks: list[chunk_pb2.Chunk] = []
        async for response in stream:
            for chunk in response.chunks:
                chunks.append(chunk)
                if chunk.sequence == len(self.chunks) + 1:
                    self.chunks.append(chunk)
        assert chunks, "a stream ends only after a finish chunk"
        assert chunks[-1].WhichOneof("payload") == "finish"
        return chunks

    async def _look(self, answered: Answered, seen: int) -> None:
        """Look at the run from the other sides, too."""
        told = await self.get()
        if answered.result is None:
            answered.result = told.result
        assert answered.result == told.result
        every = await self.watch(0)
        assert [chunk.sequence for chunk in every] == list(range(1, told.run.last_sequence + 1))
        assert {chunk.run_id for chunk in every} == {self.run_id}
        if answered.chunks:
            assert answered.chunks == every[seen:], "a replay shows the same chunks again"
        answered.chunks = every[seen:]
        self.chunks = every
        _check_blocks(every)
        _check_decisions(every)
        _check_usage(every, told.result)
        check_finish(told.run, every[-1].finish)


async def _run_id(call: Any) -> str:
    metadata = dict(await call.initial_metadata() or ())
    return str(metadata.get("entracte-run-id", ""))


def refusal_of(failure: grpc.aio.AioRpcError) -> str:
    """Code and reason of a refused RPC."""
    info = error_info(failure)
    return f"{failure.code().name} {info.reason}"


def error_info(failure: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo that every refusal carries."""
    status = rpc_status.from_call(failure)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    return info


def _check_blocks(chunks: Iterable[chunk_pb2.Chunk]) -> None:
    """Every delta belongs to a block that is open."""
    is_open: set[str] = set()
    for chunk in chunks:
        kind = chunk.WhichOneof("payload") or ""
        payload = getattr(chunk, kind)
        if kind in ("text_start", "reasoning_start"):
            is_open.add(payload.id)
        elif kind in ("text_delta", "reasoning_delta"):
            assert payload.id in is_open
        elif kind in ("text_end", "reasoning_end"):
            is_open.remove(payload.id)
        elif kind == "step_start":
            is_open.clear()


def _check_decisions(chunks: Iterable[chunk_pb2.Chunk]) -> None:
    """Each round of waiting has an id of its own, is announced once and decided at most once."""
    announced: list[str] = []
    decided: list[str] = []
    for chunk in chunks:
        kind = chunk.WhichOneof("payload") or ""
        if kind in ("tool_call_approval", "tool_call_suspended"):
            announced.append(getattr(chunk, kind).pending_call_id)
        elif kind == "tool_call_resolved":
            assert chunk.tool_call_resolved.pending_call_id in announced
            decided.append(chunk.tool_call_resolved.pending_call_id)
    assert len(set(announced)) == len(announced)
    assert len(set(decided)) == len(decided)


def _check_usage(chunks: Iterable[chunk_pb2.Chunk], result: generate_result_pb2.GenerateResult) -> None:
    """The end of a step has the step's usage, and the run's so far."""
    total = [0, 0, 0]
    steps = {step.step: step.usage for step in result.steps}
    for chunk in chunks:
        if chunk.WhichOneof("payload") == "step_finish":
            end = chunk.step_finish
            assert end.usage == steps[chunk.step]
            own = (end.usage.input_tokens, end.usage.output_tokens, end.usage.total_tokens)
            total = [before + now for before, now in zip(total, own, strict=True)]
            assert lines.usage_of(end.total_usage) == lines.tokens(total)


def check_finish(run: run_pb2.Run, finish: chunk_pb2.FinishChunk) -> None:
    """The last chunk says what the run's own row says."""
    assert finish.reason == run.finish_reason
    assert finish.stop_cause == run.stop_cause
    assert finish.usage == run.usage
    waiting = {call.pending_call_id for call in run.pending_calls}
    assert {call.pending_call_id for call in finish.open_calls} == waiting


def check_pairs(request: ModelRequest) -> None:
    """Every tool call of a conversation has exactly one result, in the message after it."""
    waiting: list[str] = []
    for message in request.messages:
        if message.role != "tool":
            assert not waiting
        for part in message.parts:
            if isinstance(part, m.ToolCallPart):
                assert part.tool_call_id not in waiting
                waiting.append(part.tool_call_id)
            elif isinstance(part, m.ToolResultPart):
                waiting.remove(part.tool_call_id)
    assert not waiting


@contextlib.asynccontextmanager
async def conversation(
    setup: Setup, script: Sequence[Any], folder: pathlib.Path
) -> AsyncIterator[Conversation]:
    """A play, with the check of what its models saw at the end."""
    async with Conversation(setup, script, folder) as talk:
        yield talk
        for request in talk.requests:
            check_pairs(request)


async def play(
    setup: Setup, script: Sequence[Any], steps: Sequence[Step], mode: Mode, folder: pathlib.Path
) -> Course:
    """Play all steps."""
    names = lines.Names()
    phases = []
    async with conversation(setup, script, folder) as talk:
        for step in steps:
            answered = await talk.take(step, mode)
            phases.append(_phase(step, answered, names))
        own_words = {
            chunk.tool_error.message: chunk.tool_error.code
            for chunk in talk.chunks
            if chunk.tool_error.code in lines.OWN_WORDS
        }
        prompts = [lines.prompt_of(request, own_words) for request in talk.requests]
    for prompt in prompts:
        prompt.messages = [names.short(line) for line in prompt.messages]
    return Course(phases, prompts, list(talk.log))


def _phase(step: Step, answered: Answered, names: lines.Names) -> Phase:
    call = type(step).__name__ if isinstance(step, Start) else step.verb
    if answered.refusal or answered.result is None:
        return Phase(call, refusal=answered.refusal)
    events = [names.short(line) for line in lines.lines_of(answered.chunks)]
    result = lines.result_of(answered.result)
    result.tool_calls = [names.short(line) for line in result.tool_calls]
    result.tool_results = [names.short(line) for line in result.tool_results]
    return Phase(call, events, result)
