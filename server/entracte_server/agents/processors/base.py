"""Processors: what looks at, changes or stops what goes into a model and what comes out of it."""

import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self

import pydantic

from entracte_server.agents.scorers import NAME, NAME_RULE
from entracte_server.domain import json_text
from entracte_server.domain.options import ProcessorRef
from entracte_server.models.base import Model, ModelRequest

INPUT_HOOKS = ("process_input", "process_input_step", "process_llm_request")
OUTPUT_HOOKS = (
    "process_output_stream",
    "end_output_stream",
    "process_llm_response",
    "process_output_step",
    "process_tool_result",
    "process_output_result",
)
HOOKS = (*INPUT_HOOKS, *OUTPUT_HOOKS, "process_api_error")

MAX_REASON = 4096
"""Longest reason of a tripwire, in characters; the rest is cut."""


class Tripped(BaseException):
    """Raised by `Processor.abort`. Not an `Exception`, so that no handler of a hook's own swallows it."""

    def __init__(self, reason: str, retry: bool, metadata: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        self.metadata = metadata


class NoParameters(pydantic.BaseModel):
    """The parameters of a processor that has none."""

    model_config = pydantic.ConfigDict(extra="forbid")


class InvalidParameters(ValueError):
    """Parameters that a processor does not take. `path` names the one that is wrong (empty: all)."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class Processor:
    """The base of processors. A subclass has a `name` and one or more hooks, coroutine functions or plain
    ones, which get a thread each time they are called:

    | hook | is given | may answer with |
    | --- | --- | --- |
    | `process_input` | `Input` | an `Input` |
    | `process_input_step` | `StepInfo` | `StepOverrides` |
    | `process_llm_request` | `LlmRequest` | an `LlmRequest`, or a `CachedAnswer` |
    | `process_output_stream` | a list of parts (chunk payloads), `StreamInfo` | the list in its place |
    | `end_output_stream` | `StreamInfo` | parts to add at the end |
    | `process_llm_response` | `Answer` | nothing |
    | `process_output_step` | `Answer` | an `Answer` |
    | `process_tool_result` | `ToolOutput` | a `ToolOutput` |
    | `process_output_result` | `Result` | a `Result` |
    | `process_api_error` | `ApiFailure` | True to have the call made again |

    None leaves everything as it is. Every hook may call `abort`. One object serves one run, and its hooks
    are called one at a time.

    Attributes:
        name: What options and agents name it by.
        can_veto: Whether a hook of outputs may abort. Then nothing of an answer is shown before it passed.
        can_rewrite: Whether a hook of outputs may answer with something else. Where it rewrites whole
            answers or results, nothing of them is shown before; what it makes of a stream is shown at once.
        sees_tool_errors: Whether `process_tool_result` is also called for the message of a tool that failed.
        timeout: Seconds one call of a hook may take; the server's setting unless given.
        Parameters: A pydantic model of what can be set, by keyword and in requests; none unless given.
        parameters: The values of these.
        models: The models it asks (`ask`), in the order they are tried.
        switched_off: Hooks that its parameters make useless, so that they are not called.
        state: A dict of JSON values that is the run's: kept over suspensions and restarts.
    """

    name: str = ""
    can_veto: bool = False
    can_rewrite: bool = False
    sees_tool_errors: bool = False
    timeout: float | None = None
    switched_off: frozenset[str] = frozenset()
    Parameters: ClassVar[type[pydantic.BaseModel]] = NoParameters
    parameters: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("process_") and name not in HOOKS:
                raise TypeError(f"{cls.__name__}.{name}: there is no such hook; there are {', '.join(HOOKS)}")

    def __init__(
        self,
        *,
        name: str | None = None,
        model: str | Model | Sequence[str | Model] = (),
        **parameters: Any,
    ) -> None:
        if name is not None:
            self.name = name
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name[:80]!r} cannot name a processor: {NAME_RULE}")
        self.id = f"processor {self.name}"
        self.models: tuple[str | Model, ...] = (
            tuple(model) if isinstance(model, Sequence) and not isinstance(model, str) else (model,)
        )
        if not hooks_of(self):
            raise ValueError(f"processor {self.name}: it has no hook; give it one of {', '.join(HOOKS)}")
        try:
            self.parameters = self.Parameters(**parameters)
        except pydantic.ValidationError as error:
            raise _invalid(error) from None
        self._fresh()
        self.configured()

    def configured(self) -> None:
        """Called when the parameters are known: sets what depends on them."""

    def load(self) -> None:
        """Called once in each process, before it serves: for what takes too long to do in a run."""

    def _fresh(self) -> None:
        self.state: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.metadata: dict[str, Any] = {}
        self._ask: Callable[[ModelRequest], Awaitable[str]] | None = None

    def bound(self, parameters: Mapping[str, Any] | None = None) -> Self:
        """A copy for one run; `parameters` go over its own, value by value. Raises `InvalidParameters`."""
        made = copy.copy(self)
        if parameters:
            own = self.parameters.model_dump(mode="json", exclude_unset=True)
            try:
                made.parameters = self.Parameters.model_validate_json(json.dumps({**own, **parameters}))
            except pydantic.ValidationError as error:
                raise _invalid(error) from None
        made._fresh()
        made.configured()
        return made

    def connect(self, ask: Callable[[ModelRequest], Awaitable[str]]) -> None:
        """Give it what `ask` uses; called by the run."""
        self._ask = ask

    def abort(
        self, reason: str, *, retry: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> NoReturn:
        """Stop the run here, with a tripwire. `retry`: have the model answer again, as often as
        `max_processor_retries` allows, and tell it `reason`; this is for answers. `metadata` is JSON."""
        text = None
        if metadata is not None:
            text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
            if len(text.encode(errors="replace")) > json_text.MAX_JSON_BYTES:
                raise ValueError(f"metadata may have {json_text.MAX_JSON_BYTES} bytes")
        raise Tripped(str(reason)[:MAX_REASON], retry, text)

    def warn(self, text: str) -> None:
        """Add a warning to the step, which is in the result."""
        self.warnings.append(text[:MAX_REASON])

    def attach(self, **metadata: Any) -> None:
        """Add JSON values to the metadata of the answer's message, which is in `response.ui_messages`.
        Raises `TypeError` or `ValueError` for what is no JSON."""
        json_text.dump_for_storage(metadata)
        self.metadata.update(metadata)

    async def ask(self, request: ModelRequest) -> str:
        """The text that the processor's models answer with. What they use counts for the run. Raises
        `ModelError`, and `RuntimeError` outside a run."""
        if self._ask is None:
            raise RuntimeError("models can be asked in a run only")
        return await self._ask(request)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _invalid(error: pydantic.ValidationError) -> InvalidParameters:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return InvalidParameters(".".join(str(step) for step in first["loc"]), first["msg"])


def hooks_of(processor: Processor) -> frozenset[str]:
    """The hooks a processor has."""
    own = (hook for hook in HOOKS if callable(getattr(processor, hook, None)))
    return frozenset(own) - processor.switched_off


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a hook is a coroutine function."""
    return inspect.iscoroutinefunction(function)


Processors = Iterable[str | Processor | ProcessorRef]
"""What an agent is given: processors, or names of those of the `App`."""


def registered(processors: Iterable[Processor]) -> dict[str, Processor]:
    """By name. Raises `ValueError` for two of one name."""
    found: dict[str, Processor] = {}
    for item in processors:
        if not isinstance(item, Processor):
            raise ValueError(f"{item!r} is no processor: give an object, such as PiiFilter()"[:200])
        if found.setdefault(item.name, item) is not item:
            raise ValueError(f"two processors are called {item.name!r}")
    return found
