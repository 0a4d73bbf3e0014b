"""What an agent notes down: told to later runs, changed with a tool, read and written by clients."""

import uuid
from pathlib import Path
from typing import Any

import pydantic
import pytest

from entracte import RequestInvalid, ThreadNotFound, WorkingMemoryChanged
from entracte_server import Agent, App, Memory, StopWhen, WorkingMemory
from entracte_server.models.base import ModelRequest
from tests.memory.support import TOOLS, Talk, call, on, talking
from tests.memory.test_history import where

pytestmark = pytest.mark.usefixtures("each_store")

TOOL = "updateWorkingMemory"
TEMPLATE = "# User\n- Name:"
NOTES = Memory(working_memory=WorkingMemory(TEMPLATE))
OK = [{"text": "ok"}]


def noting(memory: Any, number: int = 1) -> list[dict[str, Any]]:
    """An answer that replaces the working memory."""
    return [{"tool": TOOL, "id": f"n{number}", "args": {"memory": memory}}]


def system(request: ModelRequest) -> str:
    """What a model was told by the system."""
    return "\n".join(message.text for message in request.messages if message.role == "system")


def tools(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.tools]


async def outcomes(talk: Talk) -> dict[str, tuple[str, str]]:
    """State and error of each call on the thread."""
    messages = [message async for message in talk.client.threads.messages("t")]
    return {p.tool_call_id: (p.state, p.error) for message in messages for p in message.tool_invocations}


async def of_resource(talk: Talk, resource: str = "u") -> tuple[str, int]:
    """Content and version."""
    found = await talk.client.threads.working_memory(resource_id=resource)
    assert (found.resource_id, found.thread_id) == (resource, "")
    assert (found.update_time is None) == (found.version == 0)
    return found.content, found.version


async def test_what_is_noted_is_told_in_other_threads_of_the_resource() -> None:
    async with talking([noting("# User\n- Name: Ada"), OK], memory=NOTES) as talk:
        first = await talk.agent.generate("I am Ada", memory=on("t1"))
        assert [(r.tool_name, r.result) for r in first.tool_results] == [(TOOL, {"success": True})]
        assert await of_resource(talk) == ("# User\n- Name: Ada", 1)
        await talk.agent.generate("hi", memory=on("t2"))
        await talk.agent.generate("hi", memory=on("t3", "other"))
        await talk.agent.generate("hi")
        assert await of_resource(talk, "other") == ("", 0)
    mine, _, same, other, none = talk.model.requests
    assert tools(mine) == [*(tool.name for tool in TOOLS), TOOL]
    assert TEMPLATE in system(mine)
    assert "It is empty" in system(mine)
    assert "- Name: Ada" in system(same)
    assert TOOL in system(same)
    assert "Ada" not in system(other)
    assert TEMPLATE in system(other)
    assert (system(none), TOOL in tools(none)) == ("", False)


async def test_that_of_a_thread_is_the_thread_s_and_goes_with_it() -> None:
    memory = Memory(working_memory=WorkingMemory(scope="thread"))
    async with talking([noting("mine"), OK], memory=memory) as talk:
        await talk.agent.generate("note", memory=on("t1"))
        await talk.agent.generate("hi", memory=on("t2"))
        assert "mine" not in system(talk.model.requests[-1])
        await talk.agent.generate("hi", memory=on("t1"))
        assert "mine" in system(talk.model.requests[-1])
        found = await talk.client.threads.working_memory(thread_id="t1")
        assert (found.content, found.version, found.thread_id) == ("mine", 1, "t1")
        assert await of_resource(talk) == ("", 0)
        await talk.client.threads.delete("t1")
        with pytest.raises(ThreadNotFound):
            await talk.client.threads.working_memory(thread_id="t1")
        await talk.agent.generate("hi", memory=on("t1", "somebody"))
        assert "mine" not in system(talk.model.requests[-1])
        assert (await talk.client.threads.working_memory(thread_id="t1")).version == 0


class Diet(pydantic.BaseModel):
    """What somebody eats."""

    likes: list[str]


class Profile(pydantic.BaseModel):
    """A user."""

    name: str
    diet: Diet | None = None


async def test_an_object_fits_its_schema() -> None:
    memory = Memory(working_memory=WorkingMemory(schema=Profile))
    good = {"name": "Ada", "diet": {"likes": ["figs"]}}
    script = [noting({"name": "Ada", "diet": {"likes": "figs"}}), noting("Ada", 2), noting(good, 3), OK]
    async with talking(script, memory=memory) as talk:
        result = await talk.agent.generate("I am Ada and like figs", memory=on())
        assert [r.tool_call_id for r in result.tool_results] == ["n3"]
        assert [state for state, _ in (await outcomes(talk)).values()] == ["error", "error", "result"]
        found = await talk.client.threads.working_memory(resource_id="u")
        assert (found.data, found.version) == (good, 1)


async def test_the_caller_says_whether_a_run_has_it() -> None:
    async with talking([OK], memory=NOTES) as talk:
        await talk.client.threads.update_working_memory("# User\n- Name: Ada", resource_id="u")
        await talk.agent.generate("hi", memory=on(working_memory=False))
        await talk.agent.generate("hi", memory=on("new", read_only=True))
        await talk.agent.generate("hi", memory=on(working_memory=True))
    without, reading, with_it = talk.model.requests
    assert (system(without), TOOL in tools(without)) == ("", False)
    assert "- Name: Ada" in system(reading)
    assert TOOL not in system(reading)
    assert TOOL not in tools(reading)
    assert "- Name: Ada" in system(with_it)
    assert TOOL in tools(with_it)
    async with talking([OK]) as talk:
        with pytest.raises(RequestInvalid, match="working_memory"):
            await talk.agent.generate("hi", memory=on(working_memory=True))


async def test_its_tool_is_one_of_the_agent_s_for_that_run() -> None:
    async with talking([OK], memory=NOTES) as talk:
        await talk.agent.generate("hi", memory=on(), active_tools=[TOOL], tool_choice={"tool": TOOL})
        assert tools(talk.model.requests[0]) == [TOOL]
        await talk.agent.generate("hi", memory=on(), active_tools=["echo"])
        assert tools(talk.model.requests[1]) == ["echo"]
        with pytest.raises(RequestInvalid, match="active_tools"):
            await talk.agent.generate("hi", memory=on(working_memory=False), active_tools=[TOOL])
        theirs = [{"name": TOOL, "input_schema": {"type": "object"}}]
        with pytest.raises(RequestInvalid, match="client_tools"):
            await talk.agent.generate("hi", memory=on(), client_tools=theirs)


async def test_what_somebody_else_changed_is_not_overwritten(tmp_path: Path) -> None:
    """A run that was parked is told what became of the memory meanwhile, and of nothing before it asks."""
    store = where(tmp_path)
    async with talking([noting("one"), call("gated", 1)], memory=NOTES, store=store) as talk:
        suspended = await talk.agent.generate("wait", memory=on())
        await talk.client.threads.update_working_memory("theirs", resource_id="u", expected_version=1)
        [before, _] = talk.model.requests
    script = [noting("mine", 2), noting("theirs and mine", 3), noting("all", 4), OK]
    async with talking(script, memory=NOTES, store=store) as talk:
        result = await talk.agent.approve(suspended.pending_calls[0])
        assert [r.tool_call_id for r in result.tool_results] == ["n1", "c1", "n3", "n4"]
        state, told = (await outcomes(talk))["n2"]
        assert state == "error"
        assert "theirs" in told
        assert await of_resource(talk) == ("all", 4)
        # What the run was told first, it is told as long as it lasts.
        assert {system(request) for request in talk.model.requests} == {system(before)}


async def test_changes_that_need_approval_are_those_that_were_approved() -> None:
    script = [noting("raw"), OK, noting("declined", 2), OK]
    async with talking(script, memory=NOTES, require_tool_approval=[TOOL]) as talk:
        suspended = await talk.agent.generate("note", memory=on())
        assert await of_resource(talk) == ("", 0)
        await talk.agent.approve(suspended.pending_calls[0], edited_args={"memory": "edited"})
        assert await of_resource(talk) == ("edited", 1)
        suspended = await talk.agent.generate("note", memory=on())
        await talk.agent.decline(suspended.pending_calls[0])
        assert await of_resource(talk) == ("edited", 1)


async def test_two_changes_at_once_are_two_versions() -> None:
    script = [[*noting("one"), *noting("two", 2)], noting("three", 3), OK]
    async with talking(script, memory=NOTES) as talk:
        result = await talk.agent.generate("note", memory=on())
        assert len(result.tool_results) == 3
        assert await of_resource(talk) == ("three", 3)


async def test_what_is_too_large_is_refused() -> None:
    async with talking([noting("x" * 70_000), OK], memory=NOTES) as talk:
        await talk.agent.generate("note", memory=on())
        state, told = (await outcomes(talk))["n1"]
        assert (state, "65536" in told) == ("error", True)
        assert await of_resource(talk) == ("", 0)
        with pytest.raises(RequestInvalid, match="content"):
            await talk.client.threads.update_working_memory("x" * 70_000, resource_id="u")


async def test_clients_change_the_version_they_read() -> None:
    async with talking([OK]) as talk:
        threads, request_id = talk.client.threads, uuid.uuid4().hex
        first = await threads.update_working_memory("one", resource_id="u", expected_version=0)
        assert (first.content, first.version) == ("one", 1)
        for stale in (0, 2):
            with pytest.raises(WorkingMemoryChanged) as refused:
                await threads.update_working_memory("lost", resource_id="u", expected_version=stale)
            assert refused.value.metadata["version"] == "1"
        with pytest.raises(WorkingMemoryChanged):
            await threads.update_working_memory("lost", resource_id="new", expected_version=1)
        for _ in range(2):
            kept = await threads.update_working_memory(
                {"two": 2**64}, resource_id="u", expected_version=1, request_id=request_id
            )
            assert (kept.data, kept.version) == ({"two": 2**64}, 2)
        emptied = await threads.update_working_memory("", resource_id="u")
        assert (emptied.content, emptied.version, emptied.data) == ("", 3, None)
        with pytest.raises(ThreadNotFound):
            await threads.update_working_memory("x", thread_id="unknown")
        with pytest.raises(RequestInvalid, match="thread_id"):
            await threads.working_memory()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: WorkingMemory("# A", schema={"type": "object"}), "not both"),
        (lambda: WorkingMemory(schema={"type": "array"}), "object"),
        (lambda: WorkingMemory(schema={"type": "object", "properties": {"a": {"$ref": "#"}}}), "refer"),
        (lambda: WorkingMemory(scope="user"), "user"),  # type: ignore[arg-type]
        (
            lambda: Agent(id="a", model="x/y", tools={TOOL: TOOLS[0]}, memory=NOTES),
            "the tool of its working memory",
        ),
    ],
)
def test_what_an_author_cannot_mean_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_an_agent_may_stop_when_something_was_noted() -> None:
    stop = StopWhen(tool_called=TOOL)
    App(agents=[Agent(id="a", model="x/y", memory=NOTES, stop_when=stop)])
    with pytest.raises(ValueError, match="there is no tool"):
        App(agents=[Agent(id="a", model="x/y", memory=Memory(), stop_when=stop)])
