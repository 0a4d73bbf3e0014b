"""WorkerService: gives workers what they are to execute, and takes what it came to."""

import asyncio
import hashlib

import msgspec

from entracte.v1 import worker_service_pb2 as pb
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.work import Answer, OfferedTool
from entracte_server.engine.engine import Engine, draining
from entracte_server.engine.stations import Gone, Station, Told
from entracte_server.rpc import checks
from entracte_server.rpc.call import Context, current
from entracte_server.rpc.streaming import PatientWriter
from entracte_server.rpc.worker_tools import LONGEST, item_message, milliseconds, outputs_from, tools_from
from entracte_server.store.work import Bearer, TooManyWorkers, WorkerToolConflict, WorkRefused

MAX_CREDIT = 1000
MAX_ERROR = 64 * 1024
MAX_EVENTS = 1024 * 1024
"""How much is sent in one message unless one event is larger, in bytes."""

RETRY = 1.0
"""When to register again after there were too many, in seconds."""


class WorkerService:
    """See the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- giving ----

    async def PullWork(self, request: pb.PullWorkRequest, context: Context) -> None:
        """Register a session and write what it is to do."""
        call = current.get()
        call.require("worker")
        if self._engine.draining:
            raise draining()
        session_id = checks.run_id("session_id", request.session_id)
        if not session_id:
            raise invalid("session_id", "is required")
        if not 0 <= request.credit <= MAX_CREDIT:
            raise invalid("credit", f"must be from 0 to {MAX_CREDIT}")
        tools = tools_from(list(request.tools), request.credit)
        self._check_names(tools)
        principal = call.principal
        try:
            station = await self._engine.desk.connect(
                principal.tenant, principal.name, session_id, tools, request.credit
            )
        except WorkerToolConflict as conflict:
            raise Refusal(
                "WORKER_TOOL_EXISTS",
                f"{conflict.name} is registered in version {conflict.version} with another definition: give "
                "the new one another version.",
                tool=conflict.name,
                version=conflict.version,
            ) from None
        except TooManyWorkers as many:
            raise Refusal(
                "TOO_MANY_WORKERS",
                f"There are {many.limit} {many.scope} of workers already.",
                retry_after=RETRY,
                limit=str(many.limit),
                scope=many.scope,
            ) from None
        try:
            await self._serve(station, context)
        finally:
            self._engine.desk.disconnect(station)

    def _check_names(self, tools: tuple[OfferedTool, ...]) -> None:
        for tool in tools:
            if (toolset := tool.name.partition("/")[0]) in self._engine.app.toolsets:
                raise Refusal(
                    "WORKER_TOOL_EXISTS",
                    f"The toolset {toolset!r} is one of the server's: register {tool.name!r} in another.",
                    tool=tool.name,
                    version=tool.definition.version,
                )

    async def _serve(self, station: Station, context: Context) -> None:
        settings = self._engine.settings
        registered = pb.Registered(
            session_id=station.key.session_id,
            grace=milliseconds(int(settings.tool_worker_grace * 1000)),
            keep_alive=milliseconds(int(settings.keep_alive * 1000)),
            held=station.has,
        )
        loop = asyncio.get_running_loop()
        with PatientWriter(context, settings.reader_timeout) as writer:
            await writer.write(pb.PullWorkResponse(events=[pb.WorkEvent(registered=registered)]))
            self._engine.desk.claim(station.key.tenant)
            quiet_until = loop.time() + settings.keep_alive
            while not (self._engine.draining or station.ended):
                told = station.take()
                for response in _responses(told):
                    await writer.write(response)
                if told or loop.time() >= quiet_until:
                    if not told:
                        await writer.write(pb.PullWorkResponse())
                    quiet_until = loop.time() + settings.keep_alive
                await station.wait(quiet_until - loop.time())
            if not station.ended:
                await writer.write(pb.PullWorkResponse(events=[pb.WorkEvent(draining=pb.Draining())]))
                raise draining()
        if station.ended == "gone":
            raise Refusal("STORE_UNAVAILABLE", "The session is gone: register it again.", retry_after=0.1)
        raise Refusal(
            "WORKER_SESSION_REPLACED",
            "A newer stream of the session took this one's place.",
            session_id=station.key.session_id,
        )

    # ---- taking ----

    async def CompleteWork(
        self, request: pb.CompleteWorkRequest, context: Context
    ) -> pb.CompleteWorkResponse:
        """Take an outcome."""
        bearer = _bearer(request.work_id, request.token)
        answer = self._answer(request)
        digest = hashlib.sha256(msgspec.msgpack.encode(answer)).digest()
        try:
            handled = await self._engine.desk.answer(bearer, answer, digest)
        except WorkRefused as refused:
            raise _refusal(refused, bearer) from None
        return pb.CompleteWorkResponse(replayed=handled.replayed)

    def _answer(self, request: pb.CompleteWorkRequest) -> Answer:
        which = request.WhichOneof("outcome")
        if which == "result":
            text, _ = checks.json_value("result", request.result)
            size, limit = len(text.encode()), self._engine.settings.max_result
            if size > limit:
                raise invalid("result", f"has {size} bytes; at most {limit} are allowed")
            return Answer("result", text)
        if which == "error":
            return Answer("error", checks.text("error", request.error, MAX_ERROR))
        if which is None:
            raise invalid("outcome", "give result, error or suspended")
        asked = request.suspended
        return Answer(
            "suspended",
            checks.json_value("suspended.payload", asked.payload)[0] if asked.HasField("payload") else "null",
            resume_schema=checks.any_schema("suspended.resume_schema", asked.resume_schema)[0]
            if asked.HasField("resume_schema")
            else None,
            state=checks.json_object("suspended.state", asked.state)[0] if asked.HasField("state") else None,
        )

    async def ExtendWork(self, request: pb.ExtendWorkRequest, context: Context) -> pb.ExtendWorkResponse:
        """Move a deadline, take what a tool wrote."""
        bearer = _bearer(request.work_id, request.token)
        timeout = (
            checks.duration("timeout", request.timeout, 1, LONGEST) if request.HasField("timeout") else 0.0
        )
        outputs = outputs_from(list(request.output))
        try:
            handled = await self._engine.desk.extend(bearer, timeout, outputs)
        except WorkRefused as refused:
            raise _refusal(refused, bearer) from None
        return pb.ExtendWorkResponse(timeout=milliseconds(handled.timeout))

    async def AbandonWork(self, request: pb.AbandonWorkRequest, context: Context) -> pb.AbandonWorkResponse:
        """Give work out again."""
        bearer = _bearer(request.work_id, request.token)
        try:
            handled = await self._engine.desk.abandon(bearer)
        except WorkRefused as refused:
            raise _refusal(refused, bearer) from None
        return pb.AbandonWorkResponse(replayed=handled.replayed)


def _responses(told: list[Told]) -> list[pb.PullWorkResponse]:
    """The messages that tell it."""
    responses: list[pb.PullWorkResponse] = []
    size = MAX_EVENTS
    for it in told:
        if isinstance(it, Gone):
            event = pb.WorkEvent(cancelled=pb.WorkCancelled(work_id=it.work_id, token=it.token))
        else:
            event = pb.WorkEvent(item=item_message(it))
        length = event.ByteSize()
        if size + length > MAX_EVENTS:
            responses.append(pb.PullWorkResponse())
            size = 0
        responses[-1].events.append(event)
        size += length
    return responses


def _bearer(work_id: str, token: str) -> Bearer:
    call = current.get()
    call.require("worker")
    checks.identifier("work_id", work_id)
    checks.identifier("token", token)
    call.run_id = work_id.rpartition("/")[0]
    return Bearer(call.principal.tenant, call.principal.name, work_id, token)


def _refusal(refused: WorkRefused, bearer: Bearer) -> Refusal:
    name = bearer.work_id
    if refused.cause == "unknown":
        return Refusal("WORK_NOT_FOUND", "There is no such work.", work_id=name)
    if refused.cause == "reassigned":
        return Refusal("WORK_REASSIGNED", "The work was given out anew since then.", work_id=name)
    if refused.cause == "completed":
        return Refusal("WORK_COMPLETED", "The work has another outcome already.", work_id=name)
    if refused.cause == "full":
        return Refusal(
            "WORK_OUTPUT_FULL",
            "What the tool wrote is not written to its run yet: send it again in a moment.",
            retry_after=0.2,
            work_id=name,
        )
    return Refusal("WORK_CANCELLED", "Nobody wants the work any more.", work_id=name)
