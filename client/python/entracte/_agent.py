"""An agent as its callers see it."""

from collections.abc import Mapping
from typing import Any, Unpack

from entracte._callbacks import callbacks_in
from entracte._client_tools import client_tools_from
from entracte._connection import Connection
from entracte._decisions import (
    CallLike,
    DecisionRequest,
    Verb,
    args_digest,
    call_ref,
    common_fields,
    decide_and_follow,
    method_of,
    run_id_of,
)
from entracte._follow import Follower
from entracte._ids import new_id
from entracte._json import UNSET, to_json
from entracte._message_codec import to_messages
from entracte._messages import MessagesLike, messages_from
from entracte._options import DecisionOptions, GenerateOptions
from entracte._options_codec import check_names, object_type_of, to_options
from entracte._result_codec import result_of
from entracte._results import GenerateResult
from entracte._retry import Deadline
from entracte._stream import Beginning, RunStream
from entracte._tracing import span_metadata
from entracte.v1 import agent_service_pb2 as pb


class AgentClient:
    """One agent of a server; `client.agent(id)` makes it, without asking whether it exists.

    All methods raise EntracteError for what the server refuses, and TypeError or ValueError for
    arguments that cannot be sent at all.
    """

    def __init__(self, connection: Connection, agent_id: str) -> None:
        self._connection = connection
        self.id = agent_id

    def __repr__(self) -> str:
        return f"AgentClient({self.id!r})"

    async def generate(self, messages: MessagesLike, **options: Unpack[GenerateOptions]) -> GenerateResult:
        """Start a run and wait until it parks or ends.

        Client tools that are functions are executed as the run calls for them, so that it parks only
        for something else. A run that failed is a result too. When the connection breaks, the
        request is made again and joins the run it had started.

        Raises AgentNotFound, RunAlreadyExists, OptionUnsupported, ResultTooLarge, DeadlineExceeded.
        """
        if _needs_stream(options):
            return await self.stream(messages, **options).result()
        check_names(options, GenerateOptions.__annotations__, "generate")
        request = pb.GenerateRequest(**self._start_fields(messages, options))
        connection = self._connection
        response = await connection.call(
            connection.agents.Generate,
            request,
            within=options.get("timeout"),
            metadata=span_metadata(options),
        )
        return result_of(response.result, object_type_of(options))

    def stream(self, messages: MessagesLike, **options: Unpack[GenerateOptions]) -> RunStream:
        """A run as the stream of its chunks; it starts when the first chunk is asked for.

        Client tools that are functions are executed as the run calls for them, and the iteration
        goes on. Raises what `generate` raises, from the iteration.
        """
        check_names(options, GenerateOptions.__annotations__, "stream")
        request = pb.StreamRequest(**self._start_fields(messages, options))
        run_id = request.options.run_id
        connection = self._connection
        span = span_metadata(options)

        def start(remaining: float | None) -> Any:
            metadata = connection.metadata(span)
            return connection.agents.Stream(request, timeout=remaining, metadata=metadata)

        async def begin() -> Beginning:
            deadline = Deadline(options.get("timeout"))
            return Beginning(Follower(connection, deadline, run_id=run_id, start=start))

        return RunStream(
            connection,
            begin,
            run_id=run_id,
            callbacks=callbacks_in(options),
            client_tools=client_tools_from(options.get("client_tools")),
            object_type=object_type_of(options),
        )

    async def resume(
        self, call: CallLike | None = None, answer: Any = UNSET, **options: Unpack[DecisionOptions]
    ) -> GenerateResult:
        """Answer a tool that asked something, and wait until the run next parks or ends.

        Any JSON value is an answer, None (JSON `null`), False, 0 and "" too. It must fit the call's
        `resume_schema`, else ResumeDataInvalid, and the call still waits.

        All decisions raise: PendingCallNotFound, PendingCallAlreadyDecided, PendingCallExpired,
        PendingCallClaimed, PendingCallAmbiguous, VerbMismatch, AgentUnavailable, ToolUnavailable.
        """
        request = _resume_request(call, answer, options)
        return await self._decided("Resume", request, call, options)

    def resume_stream(
        self, call: CallLike | None = None, answer: Any = UNSET, **options: Unpack[DecisionOptions]
    ) -> RunStream:
        """Like `resume`, as the stream of what comes of it."""
        request = _resume_request(call, answer, options)
        return self._following("Resume", request, call, options)

    async def approve(
        self,
        call: CallLike | None = None,
        *,
        edited_args: Mapping[str, Any] | None = None,
        **options: Unpack[DecisionOptions],
    ) -> GenerateResult:
        """Approve a call, and wait until the run next parks or ends.

        The digest of what `call` showed is sent along: should the server's call differ from it,
        ArgsDigestMismatch. `edited_args` are used in place of the arguments shown; if they do not
        fit the tool's schema, EditedArgsInvalid, and the call still waits.
        """
        request = _approve_request(call, edited_args, options)
        return await self._decided("Approve", request, call, options)

    def approve_stream(
        self,
        call: CallLike | None = None,
        *,
        edited_args: Mapping[str, Any] | None = None,
        **options: Unpack[DecisionOptions],
    ) -> RunStream:
        """Like `approve`, as the stream of what comes of it."""
        request = _approve_request(call, edited_args, options)
        return self._following("Approve", request, call, options)

    async def decline(
        self,
        call: CallLike | None = None,
        *,
        reason: str = "",
        reason_data: Any = UNSET,
        **options: Unpack[DecisionOptions],
    ) -> GenerateResult:
        """Decline a call of any kind, and wait until the run next parks or ends.

        The tool is not entered; the model is told the `reason`, in words and as data (JSON).
        """
        return await self._decided(
            "Decline", _decline_request(call, reason, reason_data, options), call, options
        )

    def decline_stream(
        self,
        call: CallLike | None = None,
        *,
        reason: str = "",
        reason_data: Any = UNSET,
        **options: Unpack[DecisionOptions],
    ) -> RunStream:
        """Like `decline`, as the stream of what comes of it."""
        request = _decline_request(call, reason, reason_data, options)
        return self._following("Decline", request, call, options)

    async def submit_tool_result(
        self,
        call: CallLike | None = None,
        result: Any = UNSET,
        *,
        error: str | None = None,
        **options: Unpack[DecisionOptions],
    ) -> GenerateResult:
        """Hand in what a client tool returned, or what a call of kind `recovery` had come to, and
        wait until the run next parks or ends. `error` in place of `result`: it failed, and why."""
        return await self._decided(
            "SubmitToolResult", _submit_request(call, result, error, options), call, options
        )

    def submit_tool_result_stream(
        self,
        call: CallLike | None = None,
        result: Any = UNSET,
        *,
        error: str | None = None,
        **options: Unpack[DecisionOptions],
    ) -> RunStream:
        """Like `submit_tool_result`, as the stream of what comes of it."""
        return self._following(
            "SubmitToolResult", _submit_request(call, result, error, options), call, options
        )

    def _start_fields(self, messages: MessagesLike, options: GenerateOptions) -> dict[str, Any]:
        named: dict[str, Any] = {**options}
        if not options.get("run_id") and not options.get("request_id"):
            # With a request id of the caller's, the same request must have the same body each time.
            named["run_id"] = new_id()
        return {
            "agent_id": self.id,
            "messages": to_messages(messages_from(messages)),
            "options": to_options(named),
            "request_id": options.get("request_id") or new_id(),
        }

    async def _decided(
        self,
        verb: Verb,
        request: DecisionRequest,
        call: CallLike | None,
        options: DecisionOptions,
    ) -> GenerateResult:
        if _needs_stream(options):
            return await self._following(verb, request, call, options).result()
        check_names(options, DecisionOptions.__annotations__, "a decision")
        request.wait = True
        response: Any = await self._connection.call(
            method_of(self._connection, verb),
            request,
            within=options.get("timeout"),
            metadata=span_metadata(options),
        )
        return result_of(response.result)

    def _following(
        self,
        verb: Verb,
        request: DecisionRequest,
        call: CallLike | None,
        options: DecisionOptions,
    ) -> RunStream:
        check_names(options, DecisionOptions.__annotations__, "a decision")
        return RunStream(
            self._connection,
            decide_and_follow(
                self._connection, verb, request, options.get("timeout"), span_metadata(options)
            ),
            run_id=run_id_of(call, options),
            callbacks=callbacks_in(options),
            client_tools=client_tools_from(options.get("client_tools")),
        )


def _resume_request(call: CallLike | None, answer: Any, options: DecisionOptions) -> pb.ResumeRequest:
    if answer is UNSET:
        raise TypeError("an answer is needed; to answer with JSON null, give None")
    return pb.ResumeRequest(
        call=call_ref(call, options), resume_data=to_json(answer), **common_fields(options)
    )


def _approve_request(
    call: CallLike | None, edited_args: Mapping[str, Any] | None, options: DecisionOptions
) -> pb.ApproveRequest:
    return pb.ApproveRequest(
        call=call_ref(call, options),
        args_digest=args_digest(call),
        edited_args=None if edited_args is None else to_json(edited_args),
        **common_fields(options),
    )


def _decline_request(
    call: CallLike | None, reason: str, reason_data: Any, options: DecisionOptions
) -> pb.DeclineRequest:
    return pb.DeclineRequest(
        call=call_ref(call, options),
        reason=reason,
        reason_json=None if reason_data is UNSET else to_json(reason_data),
        **common_fields(options),
    )


def _submit_request(
    call: CallLike | None, result: Any, error: str | None, options: DecisionOptions
) -> pb.SubmitToolResultRequest:
    if (result is UNSET) == (error is None):
        raise TypeError("give a result or an error; for a result of JSON null, give None")
    fields = common_fields(options)
    if error is not None:
        return pb.SubmitToolResultRequest(call=call_ref(call, options), error=error, **fields)
    return pb.SubmitToolResultRequest(call=call_ref(call, options), result=to_json(result), **fields)


def _needs_stream(options: Mapping[str, Any]) -> bool:
    """Whether something is to happen while the run goes on."""
    tools = client_tools_from(options.get("client_tools"))
    return bool(callbacks_in(options)) or any(tool.function is not None for tool in tools)
