"""Tools that workers execute: how they are described, and what they are given."""

import inspect
import re
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

from entracte import _json
from entracte._options_codec import to_duration
from entracte._tool_schema import description_of, schema_of
from entracte.v1 import worker_service_pb2 as pb

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}/[A-Za-z0-9_-]{1,64}")


class Suspended(BaseException):
    """Leaves a tool that suspends. Not an `Exception`, so that a tool's own handlers let it pass."""

    def __init__(self, payload: Any, resume_schema: Any) -> None:
        super().__init__("the tool suspended")
        self.payload = payload
        self.resume_schema = resume_schema


class WorkContext:
    """A tool's view of the call that it executes. Made anew each time it is entered. Safe to use from the
    thread of a synchronous tool.

    Attributes:
        run_id: The run, the root of its tree of agents.
        agent_id: The agent whose call it is.
        tool_call_id: The call.
        thread_id: The conversation; empty where there is none.
        resource_id: Whose memory the run uses; empty where there is none.
        idempotency_key: The same each time this call is executed, by whichever worker, after a suspension
            too. Hand it to services that take one.
        delivery: How often the call was given to a worker, this time included.
        request_context: The values that the caller gave.
        resumed: Whether the tool is executed again with an answer.
        resume_data: The answer, a JSON value. `null` is an answer, so test `resumed`.
        suspend_payload: What was asked in the last suspension.
        expired: Whether the answer is the default one, because nobody answered in time.
        state: JSON values that the tool keeps over its suspensions; sent when it suspends.
    """

    def __init__(
        self,
        item: pb.WorkItem,
        write: Callable[[str, str, str], None],
        extend: Callable[[float], None],
    ) -> None:
        tool = item.tool
        self.run_id = item.run_id
        self.agent_id = item.agent_id
        self.tool_call_id = tool.tool_call_id
        self.thread_id = item.thread_id
        self.resource_id = item.resource_id
        self.idempotency_key = tool.idempotency_key
        self.delivery = item.delivery
        self.request_context: Mapping[str, Any] = (
            _json.parse(item.request_context.text) if item.HasField("request_context") else {}
        )
        self.resumed = tool.HasField("resumed")
        answer = tool.resumed
        self.resume_data: Any = _json.parse(answer.resume_data.text) if self.resumed else None
        self.suspend_payload: Any = (
            _json.parse(answer.suspend_payload.text) if answer.HasField("suspend_payload") else None
        )
        self.expired = answer.expired
        self.state: dict[str, Any] = _json.parse(tool.state.text) if tool.HasField("state") else {}
        self._write = write
        self._extend = extend
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the call any more. Asynchronous tools are cancelled as well; synchronous ones
        should look here now and then."""
        return self._cancelled.is_set()

    def suspend(self, payload: Any = None, *, resume_schema: Any = None) -> NoReturn:
        """Ask somebody something; never returns. The tool is executed again, from its start, with the
        answer. `payload` is what the person sees, `resume_schema` (a JSON Schema, or a pydantic model)
        narrows the tool's own for this question."""
        raise Suspended(payload, resume_schema)

    def write(self, value: Any, *, name: str = "", id: str = "") -> None:
        """Stream a JSON value to whoever follows the run: as `tool-output`, or with `name` as `data-NAME`.
        A synchronous tool waits here while it is faster than the server; an asynchronous one gets
        `BufferError` when far too much waits. Raises TypeError or ValueError for what is not JSON."""
        text = _json.dump(value)
        if not self.cancelled:
            self._write(text, name, id)

    def extend(self, timeout: float | timedelta) -> None:
        """Let this execution take `timeout` (seconds) from now on; at most a day."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if not 1 <= seconds <= 86_400:
            raise ValueError("timeout must be from 1 second to a day")
        if not self.cancelled:
            self._extend(seconds)


@dataclass(frozen=True, slots=True)
class WorkerTool:
    """A tool that a worker executes. Make one with `worker_tool`, or directly for a schema that is data.

    `name` is `toolset/name`; agents refer to it with `remote_tool("toolset/name")`. Under one `version` the
    definition never changes: what is changed gets another version. `function` is async or not (then it
    runs in a thread) and gets the arguments by name, and a parameter called `ctx` the `WorkContext`.
    `input_schema` is the JSON Schema of the arguments. `suspend_schema` and `resume_schema` say what it
    asks and what answers look like. `requires_approval`: a person must approve each call. `idempotent`:
    executing it twice with one idempotency key does no harm; when its worker is lost, such a tool is
    executed again, and of any other a person is asked what became of it. `timeout` (seconds) is the longest
    one execution may take unless it is extended, `concurrency` how many run at once (0: as many as the
    worker has).
    """

    name: str
    function: Callable[..., Any]
    input_schema: Mapping[str, Any]
    description: str = ""
    version: str = "1"
    suspend_schema: Any = None
    resume_schema: Any = None
    requires_approval: bool = False
    idempotent: bool = False
    timeout: float | timedelta | None = None
    concurrency: int = 0
    takes_context: bool = field(init=False)
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"tool name {self.name!r}: use toolset/name, of letters, digits, '_' and '-'")
        object.__setattr__(self, "takes_context", "ctx" in inspect.signature(self.function).parameters)
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.function))

    def message(self) -> pb.WorkerTool:
        """How it is registered."""
        message = pb.WorkerTool(
            name=self.name,
            version=self.version,
            description=self.description,
            input_schema=_json.to_json(self.input_schema),
            requires_approval=self.requires_approval,
            idempotent=self.idempotent,
            concurrency=self.concurrency,
        )
        if self.suspend_schema is not None:
            message.suspend_schema.CopyFrom(_json.schema_to_json(self.suspend_schema))
        if self.resume_schema is not None:
            message.resume_schema.CopyFrom(_json.schema_to_json(self.resume_schema))
        if self.timeout is not None:
            message.timeout.CopyFrom(to_duration(self.timeout))
        return message

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)


class ToolOptions(typing.TypedDict, total=False):
    """What `worker_tool` takes beside the name; see `WorkerTool`."""

    description: str
    version: str
    input_schema: Mapping[str, Any]
    suspend_schema: Any
    resume_schema: Any
    requires_approval: bool
    idempotent: bool
    timeout: float | timedelta | None
    concurrency: int


def worker_tool(
    name: str, **options: typing.Unpack[ToolOptions]
) -> Callable[[Callable[..., Any]], WorkerTool]:
    """Make a function a tool of workers:

        @worker_tool("billing/refund", idempotent=True)
        async def refund(order_id: str, ctx: WorkContext) -> dict: ...

    Its description defaults to the docstring, the schema of its arguments comes from the signature. Raises
    TypeError for annotations that have no JSON Schema, ValueError for a bad name.
    """

    def decorate(function: Callable[..., Any]) -> WorkerTool:
        given: dict[str, Any] = dict(options)
        given.setdefault("description", description_of(function))
        if "input_schema" not in given:
            given["input_schema"] = schema_of(function, skip=("ctx",))
        return WorkerTool(name, function, **given)

    return decorate
