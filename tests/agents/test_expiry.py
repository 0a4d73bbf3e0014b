"""What authors may declare about expiry, and what is refused when it is declared."""

from datetime import timedelta
from typing import Any

import pydantic
import pytest

from entracte_server import Agent, DefaultAnswer, Tool, ToolContext, ask_user, tool
from entracte_server.agents.context import Suspended
from entracte_server.domain.expiry import Expiry
from entracte_server.testing import scripted

NOTHING: Any = scripted([[{"text": "-"}]])


class Confirm(pydantic.BaseModel):
    """An answer; no JSON Schema says all of it."""

    ok: bool
    path: str = "/"

    @pydantic.field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError("must begin with a slash")
        return path


def confirming(**settings: Any) -> Tool:
    return Tool(name="wipe", execute=lambda ctx: None, resume_schema=Confirm, **settings)


def agent(*tools: Tool, **settings: Any) -> Agent:
    return Agent(id="support", model=NOTHING, tools=tools, **settings)


def test_what_is_declared() -> None:
    assert confirming().expiry is None
    assert confirming(expires_after=60).expiry == Expiry(60.0, "decline")
    assert confirming(expires_after=timedelta(days=2), on_expiry="fail").expiry == Expiry(172800.0, "fail")
    answering = confirming(expires_after=0.5, on_expiry=DefaultAnswer(Confirm(ok=False)))
    assert answering.expiry == Expiry(0.5, "answer", '{"ok":false,"path":"/"}')

    @tool(expires_after=5, on_expiry=DefaultAnswer(None))
    def asks(ctx: ToolContext) -> None:
        """Asks."""

    assert asks.expiry == Expiry(5.0, "answer", "null")


@pytest.mark.parametrize("after", [0, -1, float("nan"), float("inf"), timedelta(0), timedelta(days=400)])
def test_a_time_that_is_none(after: Any) -> None:
    with pytest.raises(
        ValueError, match=r"tool wipe: expires_after must be more than 0 and at most 31622400"
    ):
        confirming(expires_after=after)


def test_what_happens_needs_a_time() -> None:
    with pytest.raises(ValueError, match="tool wipe: on_expiry needs expires_after"):
        confirming(on_expiry="fail")
    with pytest.raises(ValueError, match="on_expiry is 'decline', 'fail' or a DefaultAnswer, not 'approve'"):
        confirming(expires_after=1, on_expiry="approve")


@pytest.mark.parametrize("answer", [{}, "yes", {"ok": "perhaps"}, {"ok": True, "path": "relative"}])
def test_a_default_answer_fits_the_tool(answer: Any) -> None:
    """Its schema, and its model where no schema says all of it."""
    with pytest.raises(ValueError, match="tool wipe: the default answer does not fit the resume schema"):
        confirming(expires_after=1, on_expiry=DefaultAnswer(answer))


@pytest.mark.parametrize("answer", [object(), float("nan"), {1, object()}])
def test_a_default_answer_is_json(answer: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        DefaultAnswer(answer)


@pytest.mark.parametrize("policy", [True, lambda args: False])
def test_an_expiry_approves_nothing(policy: Any) -> None:
    with pytest.raises(ValueError, match="tool wipe: it requires approval, and an expiry approves nothing"):
        confirming(requires_approval=policy, expires_after=1, on_expiry=DefaultAnswer({"ok": True}))
    assert confirming(requires_approval=policy, expires_after=1, on_expiry="fail").expiry is not None


def test_a_tool_with_another_expiry() -> None:
    """A copy: the tool itself stays as it is, and the copy is the same tool for calls that wait."""
    other = ask_user.expiring(60, DefaultAnswer("go on"))
    assert other.expiry == Expiry(60.0, "answer", '"go on"')
    assert ask_user.expiry is None
    assert (other.name, other.digest, other.input_schema) == (
        "ask_user",
        ask_user.digest,
        ask_user.input_schema,
    )
    assert other.validate('{"question":"Which?"}').text == ask_user.validate('{"question":"Which?"}').text
    assert other.expiring(5).expiry == Expiry(5.0, "decline")
    with pytest.raises(ValueError, match="tool ask_user: the default answer does not fit"):
        ask_user.expiring(60, DefaultAnswer(7))


def test_an_agents_expiry() -> None:
    assert agent(ask_user).expiry is None
    made = agent(ask_user, confirming(expires_after=5), expires_after=60, on_expiry=DefaultAnswer("go on"))
    assert made.expiry == Expiry(60.0, "answer", '"go on"')
    with pytest.raises(ValueError, match="agent support: on_expiry needs expires_after"):
        agent(on_expiry="fail")


def test_an_agents_default_answer_fits_each_tool_it_would_be_given_to() -> None:
    settings = {"expires_after": 60, "on_expiry": DefaultAnswer("go on")}
    with pytest.raises(ValueError, match="agent support: tool wipe: the default answer does not fit"):
        agent(confirming(), **settings)
    with pytest.raises(ValueError, match="agent support: tool pay: it requires approval"):
        agent(Tool(name="pay", execute=lambda: None, requires_approval=True), **settings)
    with pytest.raises(ValueError, match="agent support: it requires approval, and an expiry approves"):
        agent(ask_user, require_tool_approval=["pay_*"], **settings)


def suspended(context: ToolContext[Any], **settings: Any) -> Suspended:
    with pytest.raises(Suspended) as caught:
        context.suspend("?", **settings)
    return caught.value


def test_the_expiry_of_one_question() -> None:
    context: ToolContext[Any] = ToolContext(
        run_id="r",
        tool_call_id="c",
        tool_name="t",
        agent_id="a",
        idempotency_key="k",
        request_context={},
        resume_schema='{"type":"integer"}',
    )
    assert suspended(context).expiry is None
    assert suspended(context, expires_after=3).expiry == Expiry(3.0, "decline")
    assert suspended(context, expires_after=3, on_expiry=DefaultAnswer(7)).expiry == Expiry(
        3.0, "answer", "7"
    )
    with pytest.raises(ValueError, match="does not fit the resume schema"):
        context.suspend("?", expires_after=3, on_expiry=DefaultAnswer("seven"))
    narrowed = {"type": "string"}
    with pytest.raises(ValueError, match="does not fit the resume schema"):
        context.suspend("?", resume_schema=narrowed, expires_after=3, on_expiry=DefaultAnswer(7))
    fitting = suspended(context, resume_schema=narrowed, expires_after=3, on_expiry=DefaultAnswer("seven"))
    assert fitting.expiry == Expiry(3.0, "answer", '"seven"')
    with pytest.raises(ValueError, match="on_expiry needs expires_after"):
        context.suspend("?", on_expiry="fail")
