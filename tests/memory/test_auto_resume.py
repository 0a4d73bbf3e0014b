"""A new message on a thread answers what its parked run asks, where it is clear what it answers."""

import asyncio
import json
from typing import Any

import pytest

from entracte import EntracteError, GenerateResult, RequestInvalid, TooManyRuns
from entracte_server import Agent, ask_user
from entracte_server.models.base import ModelRequest
from entracte_server.testing import scripted
from tests.memory.support import on, talking

pytestmark = pytest.mark.usefixtures("each_store")

QUESTION = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
AUTO: dict[str, Any] = {"memory": on(), "auto_resume_suspended_tools": True}


def reading(*matches: tuple[str, Any]) -> list[dict[str, Any]]:
    """A model's reading of a message."""
    return [{"text": json.dumps({"matches": [{"call": c, "data": d} for c, d in matches]})}]


def asking(*ids: str) -> list[dict[str, Any]]:
    """An answer that asks a question in each of these calls."""
    return [{"tool": "ask_user", "id": id, "args": QUESTION} for id in ids]


async def test_the_message_is_the_answer() -> None:
    async with talking([asking("c1"), reading(("q1", "blue")), [{"text": "blue it is"}]]) as talk:
        suspended = await talk.agent.generate("paint", memory=on())
        result = await talk.agent.generate("the second one, please", **AUTO)
        assert (result.run_id, result.text) == (suspended.run_id, "blue it is")
        assert result.auto_resume_error == ""
        # The model reads what was asked, with the choices, and what was said.
        request: ModelRequest = talk.model.requests[1]
        assert [m.role for m in request.messages] == ["system", "system", "user"]
        assert "blue" in request.messages[0].text
        assert request.messages[2].text == "the second one, please"
        assert request.tools == ()
        [decision] = [d async for d in talk.client.inbox.decisions(run_id=result.run_id)]
        assert (decision.verb, decision.data) == ("resume", "blue")
        assert [text for role, text in await talk.stored() if role == "user"] == [
            "paint",
            "the second one, please",
        ]


async def test_models_wrap_their_reading_in_prose_and_fences() -> None:
    read = "He means:\n\n```json\n" + json.dumps({"matches": [{"call": "q1", "data": "blue"}]}) + "\n```\n"
    async with talking([asking("c1"), [{"text": read}], [{"text": "blue it is"}]]) as talk:
        await talk.agent.generate("paint", memory=on())
        result = await talk.agent.generate("the second one", **AUTO)
        assert (result.text, result.auto_resume_error) == ("blue it is", "")


async def test_what_reading_the_message_used_is_the_run_s() -> None:
    """In its result, its row and its stream; the audit says which model read it."""
    async with talking([asking("c1"), reading(("q1", "blue")), [{"text": "blue it is"}]]) as talk:
        suspended = await talk.agent.generate("paint", memory=on())
        stream = talk.agent.stream("the second one", **AUTO)
        finish = [chunk async for chunk in stream][-1]
        result = await stream.result()
        assert (suspended.usage.total_tokens, result.usage.total_tokens) == (15, 45)
        assert finish.type == "finish"
        assert finish.usage.total_tokens == 45
        run = await talk.client.runs.get(result.run_id)
        assert run.usage == result.usage
        assert run.result is not None
        assert run.result.usage == result.usage
        [decision] = [d async for d in talk.client.inbox.decisions(run_id=result.run_id)]
        assert talk.model.name in decision.comment


async def test_the_question_of_a_sub_agent_is_answered() -> None:
    """Through the run that has the thread, whose usage has what reading the message used."""
    helper = Agent(id="helper", model=scripted([asking("q"), [{"text": "painted"}]]), tools=[ask_user])
    script: list[Any] = [
        [{"tool": "agent-helper", "id": "c1", "args": {"prompt": "paint"}}],
        reading(("q1", "blue")),
        [{"text": "done"}],
    ]
    async with talking(script, agents=[helper]) as talk:
        suspended = await talk.agent.generate("paint it", memory=on())
        result = await talk.agent.generate("blue", **AUTO)
        assert (result.run_id, result.text) == (suspended.run_id, "done")
        assert result.usage.total_tokens == 5 * 15
        assert (await talk.client.runs.get(result.run_id)).usage == result.usage


async def test_the_thread_keeps_the_answer_unless_it_is_not_to() -> None:
    """A run that only reads answers nothing, since that writes."""
    async with talking([asking("c1"), reading(("q1", "blue")), [{"text": "end"}]]) as talk:
        await talk.agent.generate("paint", memory=on())
        with pytest.raises(RequestInvalid) as refused:
            await talk.agent.generate("blue", memory=on(read_only=True), auto_resume_suspended_tools=True)
        assert [v.field for v in refused.value.violations] == ["options.memory.read_only"]
        told = {"role": "user", "content": "blue", "id": "told"}
        unsaved = on(save_messages=False)
        result = await talk.agent.generate([told], memory=unsaved, auto_resume_suspended_tools=True)
        assert result.text == "end"
        assert [text for role, text in await talk.stored() if role == "user"] == ["paint"]


async def test_an_answer_takes_the_place_of_nothing_that_was_said() -> None:
    def said(text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": text, "id": "1"}]

    script = [asking("c1"), reading(("q1", "blue")), asking("c2"), reading(("q1", "red")), [{"text": "end"}]]
    async with talking(script) as talk:
        await talk.agent.generate(said("paint"), memory=on())
        await talk.agent.generate(said("blue"), **AUTO, run_id="mine")
        await talk.agent.generate(said("red"), **AUTO, run_id="mine")
        assert [text for role, text in await talk.stored() if role == "user"] == ["paint", "blue", "red"]


async def test_a_stream_goes_on_where_the_run_waited() -> None:
    async with talking([asking("c1"), reading(("q1", "blue")), [{"text": "blue it is"}]]) as talk:
        suspended = await talk.agent.generate("paint", memory=on())
        stream = talk.agent.stream("blue", **AUTO)
        kinds = [chunk.type async for chunk in stream]
        assert stream.run_id == suspended.run_id
        assert kinds[0] == "tool-call-resolved"
        assert kinds[-1] == "finish"
        assert (await stream.result()).text == "blue it is"


@pytest.mark.parametrize(
    ("read", "word"),
    [
        ([], "nothing that was asked"),
        ([("q1", "green")], "does not fit"),
        ([("q1", "red"), ("q1", "blue")], "more than one"),
        ([("q7", "red")], "none that can be used"),
    ],
)
async def test_what_is_not_clear_decides_nothing(read: list[tuple[str, Any]], word: str) -> None:
    async with talking([asking("c1"), reading(*read)]) as talk:
        suspended = await talk.agent.generate("paint", memory=on())
        result = await talk.agent.generate("hm", **AUTO)
        assert (result.run_id, result.finish_reason) == (suspended.run_id, "suspended")
        assert word in result.auto_resume_error
        assert result.pending_calls == suspended.pending_calls
        assert [text for _, text in await talk.stored()] == ["paint", ""]
        stream = talk.agent.stream("hm", **AUTO)
        assert [chunk.type async for chunk in stream] == ["finish"]
        assert word in (await stream.result()).auto_resume_error


async def test_an_approval_is_never_given_by_a_message() -> None:
    gated = [{"tool": "gated", "id": "c1", "args": {"msg": "1"}}]
    async with talking([gated]) as talk:
        await talk.agent.generate("do it", memory=on())
        result = await talk.agent.generate("yes, I approve", **AUTO)
        assert result.finish_reason == "suspended"
        assert result.auto_resume_error
        assert len(talk.model.requests) == 1


async def test_one_of_two_questions_is_answered() -> None:
    async with talking([asking("c1", "c2"), reading(("q2", "red")), [{"text": "end"}]]) as talk:
        await talk.agent.generate("paint", memory=on())
        result = await talk.agent.generate("red for the door", **AUTO)
        assert (result.finish_reason, result.auto_resume_error) == ("suspended", "")
        assert [call.tool_call_id for call in result.pending_calls] == ["c1"]


async def test_a_free_thread_starts_a_run() -> None:
    async with talking([[{"text": "hello"}]]) as talk:
        assert (await talk.agent.generate("hi", **AUTO)).text == "hello"


async def test_reading_a_message_takes_the_place_of_a_run() -> None:
    """A full server asks no models, for that neither."""

    def script(request: ModelRequest) -> Any:
        return asking("c1") if request.messages[-1].text == "paint" else [{"text": "be"}, {"delay": 600_000}]

    async with talking(script, settings={"max_runs": 1}) as talk:
        await talk.agent.generate("paint", memory=on())
        busy = talk.agent.stream("busy")
        async for chunk in busy:
            if chunk.type == "text-delta":
                break
        with pytest.raises(TooManyRuns):
            await talk.agent.generate("red", **AUTO)
        assert len(talk.model.requests) == 2
        await talk.client.runs.cancel(busy.run_id, wait=True)


async def test_options_of_another_run_are_refused() -> None:
    async with talking([asking("c1")]) as talk:
        with pytest.raises(RequestInvalid, match="memory"):
            await talk.agent.generate("hi", auto_resume_suspended_tools=True)
        await talk.agent.generate("paint", memory=on())
        with pytest.raises(RequestInvalid, match="max_steps"):
            await talk.agent.generate("blue", **AUTO, max_steps=3)


async def test_a_repeated_message_answers_once() -> None:
    async with talking([asking("c1"), reading(("q1", "blue")), [{"text": "end"}]]) as talk:
        suspended = await talk.agent.generate("paint", memory=on())
        first = await talk.agent.generate("blue", **AUTO, request_id="r")
        again = await talk.agent.generate("blue", **AUTO, request_id="r")
        assert first == again
        assert first.run_id == suspended.run_id
        assert len(talk.model.requests) == 3


async def test_two_messages_at_once_answer_once() -> None:
    def script(request: ModelRequest) -> Any:
        if request.tools == ():
            return reading(("q1", request.messages[-1].text))
        return asking("c1") if len(request.messages) == 1 else [{"text": "end"}]

    async with talking(script) as talk:
        await talk.agent.generate("paint", memory=on())
        results = await asyncio.gather(
            *(talk.agent.generate(colour, **AUTO) for colour in ("red", "blue")), return_exceptions=True
        )
        decisions = [d async for d in talk.client.inbox.decisions()]
        assert len(decisions) == 1
        said = [text for role, text in await talk.stored() if role == "user"]
    assert said[:2] == ["paint", decisions[0].data]
    assert any(not isinstance(result, BaseException) for result in results)
    assert all(isinstance(result, EntracteError) for result in results if isinstance(result, BaseException))


async def test_no_message_is_lost_that_comes_when_another_has_answered() -> None:
    """It starts a run of its own, or is refused: it is not taken for one that answers nothing."""

    def script(request: ModelRequest) -> Any:
        if request.tools == ():
            return reading(("q1", "red"))
        return asking("c1") if len(request.messages) == 1 else [{"text": "end"}]

    async with talking(script) as talk:
        await talk.agent.generate("paint", memory=on())
        words = [f"red {number}" for number in range(12)]
        results = await asyncio.gather(
            *(talk.agent.generate(word, **AUTO) for word in words), return_exceptions=True
        )
        said = [text for role, text in await talk.stored() if role == "user"]
    heard = [
        word for word, result in zip(words, results, strict=True) if not isinstance(result, BaseException)
    ]
    assert sorted(said[1:]) == sorted(heard)
    assert all(not result.auto_resume_error for result in results if isinstance(result, GenerateResult))
