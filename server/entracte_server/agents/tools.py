"""Tools: functions an agent's model can call.

A tool's schema comes from its signature (through pydantic) or is given as JSON Schema. Arguments
are validated before anybody is asked and before the body is entered.
"""

import copy
import hashlib
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pydantic

from entracte_server.agents import schemas
from entracte_server.agents.context import ToolContext
from entracte_server.agents.expiry import WhatThen, check_answer, expiry_from
from entracte_server.agents.schemas import InvalidValue, Violation
from entracte_server.domain import json_text

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

SchemaLike = type[pydantic.BaseModel] | Mapping[str, Any]
Predicate = Callable[[Any], bool]


class Arguments:
    """Validated arguments: `text` is the JSON that is shown, frozen and executed, `value` what
    predicates see (a pydantic model, or a dict for a tool whose schema is data)."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Any) -> None:
        self.text = text
        self.value = value


def _violations(error: pydantic.ValidationError) -> tuple[Violation, ...]:
    return tuple(
        Violation(schemas.pointer(item["loc"]), item["msg"][:500])
        for item in error.errors(include_url=False, include_context=False, include_input=False)[
            : schemas.MAX_VIOLATIONS
        ]
    )


def _schema(source: SchemaLike | None) -> tuple[str | None, type[pydantic.BaseModel] | None]:
    """A schema as text, and the pydantic model it came from."""
    if source is None:
        return None, None
    if isinstance(source, type) and issubclass(source, pydantic.BaseModel):
        return json_text.dump(source.model_json_schema()), source
    text = json_text.dump(source)
    schemas.compile_schema(text)
    return text, None


def schema_text(source: SchemaLike) -> str:
    """The JSON text of a schema that authors give. Raises `schemas.InvalidSchema`."""
    text, model = _schema(source)
    assert text is not None
    if model is not None:
        schemas.compile_schema(text)
    return text


def _is_context(annotation: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, ToolContext)


class Tool:
    """A tool. Make one with `@tool`, or directly for a schema that is data.

    Args:
        name: What the model calls it: letters, digits, `_` and `-`, at most 64.
        description: What it does, for the model.
        execute: The body, `async` or not; a synchronous one runs in a thread. Called with the
            arguments by name, or, with `input_schema`, as `execute(args, ctx)`.
        input_schema: JSON Schema of the arguments, an object schema. Default: from the signature.
        requires_approval: Whether a person must approve each call, or a function of the validated
            arguments that says so; one that raises means yes.
        idempotent: Whether running it twice with one idempotency key does no harm. After a crash
            inside it, such a tool is run again by itself; any other waits for a person.
        timeout: The longest one execution may take, in seconds. Default: the server's setting.
        suspend_schema: What it asks; for documentation.
        resume_schema: What an answer must look like: a pydantic model (then `ctx.resume_data` is
            one) or a JSON Schema.
        expires_after: How long a call may wait for a person, in seconds or as a `timedelta`, from when
            it is shown. Default: the agent's, else for ever.
        on_expiry: What happens to a call that expires: `decline`, `fail` (its run fails), or a
            `DefaultAnswer` to what the tool asks.

    Raises `ValueError` for a bad name, for a default answer that does not fit the resume schema, and for
    one of a tool that requires approval: an expiry approves nothing. `TypeError` for a signature that
    cannot be a schema, `schemas.InvalidSchema` for a bad schema.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        execute: Callable[..., Any],
        input_schema: Mapping[str, Any] | None = None,
        requires_approval: bool | Predicate = False,
        idempotent: bool = False,
        timeout: float | None = None,
        suspend_schema: SchemaLike | None = None,
        resume_schema: SchemaLike | None = None,
        expires_after: float | timedelta | None = None,
        on_expiry: WhatThen = "decline",
    ) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"tool name {name!r}: use letters, digits, '_' and '-', at most 64")
        self.name = name
        self.description = description
        self.execute = execute
        self.requires_approval = requires_approval
        self.idempotent = idempotent
        self.timeout = timeout
        self.is_async = inspect.iscoroutinefunction(execute) or inspect.iscoroutinefunction(
            getattr(execute, "__call__", None)  # noqa: B004
        )
        self.suspend_schema, _ = _schema(suspend_schema)
        self.resume_schema, self.resume_model = _schema(resume_schema)
        self._context_name: str | None = None
        self._model: type[pydantic.BaseModel] | None = None
        if input_schema is not None:
            self.input_schema = json_text.dump(input_schema)
            schemas.compile_schema(self.input_schema)
            if dict(input_schema).get("type", "object") != "object":
                raise schemas.InvalidSchema(f"tool {name}: the input schema must be of type object")
        else:
            self._model = self._signature_model()
            schema = self._model.model_json_schema()
            schema.pop("title", None)
            schema.pop("description", None)
            schema.setdefault("properties", {})
            self.input_schema = json_text.dump(schema)
        self.digest = hashlib.sha256(
            json_text.dump(
                [name, description, self.input_schema, self.resume_schema, bool(requires_approval)]
            ).encode()
        ).digest()
        self._expire(expires_after, on_expiry)

    def _expire(self, expires_after: float | timedelta | None, on_expiry: WhatThen) -> None:
        try:
            self.expiry = expiry_from(expires_after, on_expiry)
            if self.expiry is not None and self.expiry.answer is not None:
                self.check_default(self.expiry.answer)
        except ValueError as error:
            raise ValueError(f"tool {self.name}: {error}") from None

    def check_default(self, answer: str) -> None:
        """Raises `ValueError` when the JSON text `answer` cannot be what the tool gets when nobody
        answers in time."""
        if self.requires_approval:
            raise ValueError(
                "it requires approval, and an expiry approves nothing: use 'decline' or 'fail', or give "
                "the default answer to ctx.suspend()"
            )
        check_answer(self.resume_schema, answer)
        try:
            self.parse_resume(answer)
        except InvalidValue as error:
            raise ValueError(f"the default answer does not fit the resume schema: {error}") from None

    def expiring(self, expires_after: float | timedelta, on_expiry: WhatThen = "decline") -> "Tool":
        """This tool with another expiry: `ask_user.expiring(3600, DefaultAnswer("go on"))`. Raises
        `ValueError` as the constructor does."""
        tool = copy.copy(self)
        tool._expire(expires_after, on_expiry)
        return tool

    def _signature_model(self) -> type[pydantic.BaseModel]:
        hints = typing.get_type_hints(self.execute, include_extras=True)
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(self.execute).parameters.values():
            annotation = hints.get(parameter.name, Any)
            if _is_context(annotation) or (parameter.name == "ctx" and annotation is Any):
                self._context_name = parameter.name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(
                    f"tool {self.name}: parameter {parameter.name!r} must be an ordinary named one"
                )
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (annotation, default)
        return pydantic.create_model(
            f"{self.name}_arguments",
            __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False),
            **fields,
        )

    def validate(self, text: str) -> Arguments:
        """The arguments in the JSON object `text`. Raises `InvalidValue`."""
        if self._model is not None:
            try:
                value = self._model.model_validate_json(text)
            except pydantic.ValidationError as error:
                raise InvalidValue(_violations(error)) from None
            return Arguments(json_text.scrub(value.model_dump_json(by_alias=True)), value)
        parsed = json_text.parse(text)
        schemas.check(self.input_schema, parsed)
        return Arguments(text, parsed)

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether a person must approve a call with these arguments; True when the tool's own
        predicate fails."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        try:
            return bool(self.requires_approval(arguments.value))
        except BaseException:  # SystemExit, too: a policy that cannot be had must not stop the server
            return True

    def parse_resume(self, text: str) -> Any:
        """The answer `text` as the tool gets it. Raises `InvalidValue`."""
        if self.resume_model is None:
            return json_text.parse(text)
        try:
            return self.resume_model.model_validate_json(text)
        except pydantic.ValidationError as error:
            raise InvalidValue(_violations(error)) from None

    def call(self, arguments: Arguments, context: "ToolContext[Any]") -> Any:
        """Enter the body: its value, or a coroutine of it for an asynchronous tool."""
        if self._model is None:
            return self.execute(arguments.value, context)
        named = {name: getattr(arguments.value, name) for name in type(arguments.value).model_fields}
        if self._context_name is not None:
            named[self._context_name] = context
        return self.execute(**named)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, outside any run."""
        return self.execute(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


@typing.overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@typing.overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    requires_approval: bool | Predicate = False,
    idempotent: bool = False,
    timeout: float | None = None,
    suspend_schema: SchemaLike | None = None,
    resume_schema: SchemaLike | None = None,
    expires_after: float | timedelta | None = None,
    on_expiry: WhatThen = "decline",
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    requires_approval: bool | Predicate = False,
    idempotent: bool = False,
    timeout: float | None = None,
    suspend_schema: SchemaLike | None = None,
    resume_schema: SchemaLike | None = None,
    expires_after: float | timedelta | None = None,
    on_expiry: WhatThen = "decline",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool; see `Tool` for the arguments.

    The name defaults to the function's, the description to its docstring, the schema comes from its
    signature. A parameter annotated `ToolContext` (or called `ctx`) gets the context and is not part
    of the schema.
    """

    def decorate(body: Callable[..., Any]) -> Tool:
        return Tool(
            name=name or body.__name__,
            description=description if description is not None else inspect.getdoc(body) or "",
            execute=body,
            requires_approval=requires_approval,
            idempotent=idempotent,
            timeout=timeout,
            suspend_schema=suspend_schema,
            resume_schema=resume_schema,
            expires_after=expires_after,
            on_expiry=on_expiry,
        )

    return decorate if function is None else decorate(function)
