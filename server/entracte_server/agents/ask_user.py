"""The built-in tool that asks a person a question."""

from typing import Annotated, Any, Literal

import pydantic

from entracte_server.agents.context import ToolContext
from entracte_server.agents.tools import Tool

SelectionMode = Literal["single_select", "multi_select"]

_NOT_BLANK = {"type": "string", "pattern": r"\S"}


class Option(pydantic.BaseModel):
    """A choice offered with a question."""

    model_config = pydantic.ConfigDict(extra="forbid")

    label: Annotated[str, pydantic.Field(min_length=1, description="Short text; what is answered.")]
    description: Annotated[str | None, pydantic.Field(description="What choosing it means.")] = None


class Question(pydantic.BaseModel):
    """A question to a person."""

    model_config = pydantic.ConfigDict(extra="forbid")

    question: Annotated[str, pydantic.Field(min_length=1, pattern=r"\S", description="The question.")]
    options: Annotated[
        list[Option] | None, pydantic.Field(description="The choices; leave out for a free text.")
    ] = None
    selection_mode: Annotated[
        SelectionMode | None,
        pydantic.Field(description="How many choices may be taken; single_select unless given."),
    ] = None
    allow_free_text: Annotated[
        bool, pydantic.Field(description="Whether an answer beside the choices is welcome.")
    ] = False

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Question":
        if self.selection_mode is not None and not self.options:
            raise ValueError("selection_mode requires options")
        labels = [option.label for option in self.options or ()]
        if len(set(labels)) != len(labels):
            raise ValueError("the labels of the options must differ")
        return self

    @property
    def mode(self) -> SelectionMode | None:
        """The selection mode, resolved; None for a free text."""
        return (self.selection_mode or "single_select") if self.options else None

    def payload(self) -> dict[str, Any]:
        """What the person is shown: the question's own shape with the mode resolved."""
        shown = self.model_dump(exclude_none=True, exclude_defaults=True)
        if self.mode is not None:
            shown["selection_mode"] = self.mode
        return shown

    def answer_schema(self) -> dict[str, Any]:
        """What an answer must look like: one label, a list of different labels, or a text that is
        not blank."""
        if self.mode is None:
            return _NOT_BLANK
        one: dict[str, Any] = {"type": "string", "enum": [option.label for option in self.options or ()]}
        if self.allow_free_text:
            one = _NOT_BLANK
        if self.mode == "single_select":
            return one
        return {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}

    def fallback(self) -> str:
        """The question as a readable text, for use outside a run."""
        lines = [f"[Question for user]: {self.question}"]
        if self.options:
            lines.append("Options: " + ", ".join(option.label for option in self.options))
            lines.append(f"Selection mode: {self.mode}")
        return "\n".join(lines)


async def _ask(
    question: str,
    options: list[Option] | None = None,
    selection_mode: SelectionMode | None = None,
    allow_free_text: bool = False,
    ctx: ToolContext[Any] | None = None,
) -> Any:
    asked = Question.model_validate(
        {
            "question": question,
            "options": options,
            "selection_mode": selection_mode,
            "allow_free_text": allow_free_text,
        }
    )
    if ctx is None:
        return asked.fallback()
    if not ctx.resumed:
        ctx.suspend(asked.payload(), resume_schema=asked.answer_schema())
    answer = ctx.resume_data
    said = ", ".join(answer) if isinstance(answer, list) else answer
    content = (
        f"Nobody answered in time. The default answer: {said}" if ctx.expired else f"User answered: {said}"
    )
    return {"content": content, "answer": answer, "isError": False}


class _AskUser(Tool):
    """As `Tool`, with the rules between the fields of a question part of its argument check."""

    def __init__(self) -> None:
        super().__init__(
            name="ask_user",
            description=(
                "Ask the user a question and wait for the answer. Offer options when the answer is "
                "one of a few; use multi_select when several may apply."
            ),
            execute=_ask,
            suspend_schema=Question,
            resume_schema={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            idempotent=True,
        )

    def _signature_model(self) -> type[pydantic.BaseModel]:
        self._context_name = "ctx"
        return Question


ask_user: Tool = _AskUser()
"""Asks the user; any agent can be given it.

Arguments: `question` (not blank), `options` (`label`, `description`), `selection_mode`
(`single_select`, the default with options, or `multi_select`; needs options), `allow_free_text`.
The run parks with a payload of the same shape, the mode resolved. An answer is a text, or for
multi-select a list of labels; anything that does not fit is refused and the question stays open.
`ask_user.expiring(600, DefaultAnswer("go on"))` answers by itself after ten minutes; a question whose
options do not have that answer is declined.
Called outside a run it returns the question and its choices as a readable text.
"""
