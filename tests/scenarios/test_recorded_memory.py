"""The recorded scenarios on a thread: what is on it after each call, and what the model was told.

Ours keeps a message for each step where the recorded store keeps one for a run, so that neighbours of one
role are compared as one.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import entracte
from entracte import Client, GenerateResult, Memory, RunStream, ThreadMessage
from entracte_server import Agent, App
from entracte_server.models.base import ModelRequest
from entracte_server.testing import ScriptedModel, scripted, serve
from tests.scenarios import tools
from tests.scenarios.recording import FILE

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason=f"the recordings are not here: {FILE}")

MEMORY = Memory("t1", "u1")
STATES = {"call": "pending", "output-denied": "denied"}

Told = list[tuple[str, list[Any]]]


def recording(name: str) -> Mapping[str, Any]:
    """A recording, as it is in the file."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        if raw["name"] == name:
            return dict(raw)
    raise LookupError(name)


def joined(messages: Sequence[tuple[str, list[Any]]]) -> Told:
    """Neighbours of one role together."""
    found: Told = []
    for role, parts in messages:
        if found and found[-1][0] == role:
            found[-1][1].extend(parts)
        else:
            found.append((role, list(parts)))
    return found


def recorded_thread(raw: Mapping[str, Any], phase: int) -> Told:
    """What was on the thread after a call."""

    def parts(message: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for part in message["content"]["parts"]:
            if part["type"] == "text":
                found.append(part["text"].strip())
            elif part["type"] == "tool-invocation":
                call = part["toolInvocation"]
                state = STATES.get(call["state"], call["state"])
                found.append([call["toolCallId"], call["args"], state, call.get("result")])
            elif part["type"] != "step-start":
                found.append(part["type"])
        return found

    stored = raw["phases"][phase]["extra"]["db"]
    return joined([(message["role"], parts(message)) for message in stored])


def recorded_prompts(raw: Mapping[str, Any]) -> list[Told]:
    """What the model was told, call by call."""

    def items(content: Any) -> list[Any]:
        if isinstance(content, str):
            return [content]
        return [part["text"] if part["type"] == "text" else part["toolCallId"] for part in content]

    return [[(m["role"], items(m["content"])) for m in call["prompt"]] for call in raw["model_calls"]]


class Talk:
    """The recorded agent, and its thread."""

    def __init__(self, client: Client, model: ScriptedModel) -> None:
        self.client = client
        self.model = model
        self.agent = client.agent("a")

    async def thread(self) -> Told:
        """What is on the thread, in the form of `recorded_thread`."""

        def parts(message: ThreadMessage) -> list[Any]:
            found: list[Any] = []
            for part in message.parts:
                if part.type == "text":
                    found.append(part.text.strip())
                elif part.type == "tool-invocation":
                    found.append([part.tool_call_id, part.args, part.state, part.result])
                else:
                    found.append(part.type)
            return found

        listed = self.client.threads.messages("t1")
        return joined([(message.role, parts(message)) async for message in listed])

    @property
    def prompts(self) -> list[Told]:
        """What the model was told, in the form of `recorded_prompts`."""

        def items(part: Any) -> Any:
            return getattr(part, "tool_call_id", "") or part.text

        def told(request: ModelRequest) -> Told:
            return [(m.role, [items(part) for part in m.parts]) for m in request.messages]

        return [told(request) for request in self.model.requests]

    async def say(self, text: str, **options: Any) -> GenerateResult:
        """A message on the thread."""
        return await self.agent.stream(text, memory=MEMORY, **options).result()


@asynccontextmanager
async def talking(script: Sequence[Any]) -> AsyncIterator[Talk]:
    """Serve the recorded agent with this model."""
    model = scripted([*script])
    made = [*tools.remembered(tools.Log()).values()]
    app = App(agents=[Agent(id="a", model=model, instructions="SYS", tools=made)])
    async with serve(app) as server, Client(server.address) as client:
        yield Talk(client, model)


async def test_memory_plain() -> None:
    raw = recording("memory_plain")
    async with talking(raw["model_script"]) as talk:
        for phase, text in enumerate(("hi", "again")):
            await talk.say(text)
            assert await talk.thread() == recorded_thread(raw, phase)
        assert talk.prompts == recorded_prompts(raw)


async def test_memory_suspend_resume() -> None:
    raw = recording("memory_suspend_resume")
    async with talking(raw["model_script"]) as talk:
        suspended = await talk.say("hi")
        assert await talk.thread() == recorded_thread(raw, 0)
        await talk.agent.resume(suspended.pending_calls[0], {"ok": True})
        assert await talk.thread() == recorded_thread(raw, 1)
        assert talk.prompts == recorded_prompts(raw)


async def test_memory_decline() -> None:
    raw = recording("memory_decline")
    async with talking(raw["model_script"]) as talk:
        suspended = await talk.say("hi", require_tool_approval=True)
        assert await talk.thread() == recorded_thread(raw, 0)
        await talk.agent.decline(suspended.pending_calls[0], reason="nope")
        assert await talk.thread() == recorded_thread(raw, 1)
        await talk.say("next")
        assert await talk.thread() == recorded_thread(raw, 2)
        assert talk.prompts == recorded_prompts(raw)


async def test_memory_new_message_while_suspended() -> None:
    """Recorded: the message is answered as if nothing waited, and the answer of the old run comes after it
    on the thread. Ours is refused, naming what waits; the run goes on, and then there is room for it."""
    raw = recording("memory_new_message_while_suspended")
    first, unrelated, after = raw["model_script"]
    async with talking([first, after, unrelated]) as talk:
        suspended = await talk.say("hi")
        [call] = suspended.pending_calls
        with pytest.raises(entracte.ThreadParked) as refused:
            await talk.say("what time is it")
        assert refused.value.metadata["pending_call_ids"] == call.pending_call_id
        assert await talk.thread() == recorded_thread(raw, 0)
        await talk.agent.resume(call, {"ok": True})
        await talk.say("what time is it")
        said = await talk.thread()
        theirs = recorded_thread(raw, 2)
        assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
        assert sorted(map(str, said[1][1] + said[3][1])) == sorted(map(str, theirs[1][1] + theirs[3][1]))
        assert said[1][1][-1] == "after resume"


async def test_autoresume() -> None:
    """Recorded: the model calls the tool once more, under another id, the old call stays open, and its run
    can be resumed a second time. Ours reads the answer out of the message, and it decides the call that
    waits: one call, one result, one run."""
    raw = recording("autoresume")
    first, again, last = raw["model_script"]
    answer = again[0]["args"]["resumeData"]
    read = [{"text": json.dumps({"matches": [{"call": "q1", "data": answer}]})}]
    async with talking([first, read, last]) as talk:
        suspended = await talk.say("hi")
        assert await talk.thread() == recorded_thread(raw, 0)
        result = await talk.say("yes go ahead", auto_resume_suspended_tools=True)
        assert (result.run_id, result.text) == (suspended.run_id, "resumed fine")
        asked, called, answered, resumed = recorded_thread(raw, 2)
        assert await talk.thread() == [asked, called, answered, ("assistant", resumed[1][1:2])]
        with pytest.raises(entracte.PendingCallAlreadyDecided):
            await talk.agent.resume(suspended.pending_calls[0], {"ok": True})


@pytest.mark.parametrize("name", ["savePerStep", "savePerStep_off"])
async def test_a_second_step_that_fails(name: str) -> None:
    """Both keep the step before it, and why there is no more."""
    raw = recording(name)
    async with talking(raw["model_script"]) as talk:
        result = await talk.say("hi", save_per_step=name == "savePerStep")
        assert result.finish_reason == "error"
        assert await talk.thread() == recorded_thread(raw, 0)
        assert talk.prompts == recorded_prompts(raw)


@pytest.mark.parametrize("each", [True, False], ids=["savePerStep_midrun_true", "savePerStep_midrun_false"])
async def test_what_is_there_before_the_end(each: bool) -> None:
    """Recorded: nothing, or with `savePerStep` the step. Ours has what was asked in any case."""
    raw = recording(f"savePerStep_midrun_{str(each).lower()}")
    extra = raw["phases"][0]["extra"]
    script = [[{"tool": "echo", "id": "c1", "args": {"msg": "1"}}], [{"text": "end"}, {"delay": 600_000}]]
    async with talking(script) as talk:
        stream: RunStream = talk.agent.stream("hi", memory=MEMORY, save_per_step=each)
        async for chunk in stream:
            if chunk.type == "text-delta":
                break
        said = await talk.thread()
        ours = [
            [role, [part if isinstance(part, str) else part[2] for part in parts]] for role, parts in said
        ]
        assert ours == (extra["mid_run_db"] or [["user", ["hi"]]])
        await talk.client.runs.cancel(stream.run_id, wait=True)
