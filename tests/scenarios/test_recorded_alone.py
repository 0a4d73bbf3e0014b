"""The recorded scenarios that are no course of calls, and what callbacks are told."""

import asyncio
import contextlib
import json
import pathlib
from typing import Any

import grpc
import pydantic
import pytest

from entracte import Client
from entracte.v1 import agent_service_pb2 as pb
from entracte.v1 import options_pb2, run_pb2, run_service_pb2
from entracte_server import ask_user
from tests.scenarios import lines, tools
from tests.scenarios.play import AGENT, Setup, Start, conversation, refusal_of, text_input
from tests.scenarios.recording import FILE
from tests.scenarios.table import resume

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason=f"the recordings are not here: {FILE}")

OPTIONS = [{"label": "Red", "description": "warm"}, {"label": "Blue"}]


def phase_of(name: str, index: int = 0) -> dict[str, Any]:
    """A phase of a recording, as it is in the file."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        if raw["name"] == name:
            return dict(raw["phases"][index])
    raise LookupError(name)


async def test_ask_user_direct_no_suspend() -> None:
    """Called outside a run, the question is a readable text with its choices: the recorded `content`. A
    question that is none is refused by an error rather than by a result."""
    given: list[dict[str, Any]] = [
        {"question": "Q?"},
        {"question": "Q?", "options": OPTIONS},
        {"question": "Q?", "options": OPTIONS, "selection_mode": "multi_select"},
    ]
    told = [await ask_user(**arguments) for arguments in given]
    recorded = phase_of("ask_user_direct_no_suspend")["result"]
    assert told == [one["output"]["content"] for one in recorded[:3]]
    wrong: list[dict[str, Any]] = [
        {"question": "Q?", "selection_mode": "single_select"},
        {"question": ""},
    ]
    for arguments in wrong:
        with pytest.raises(pydantic.ValidationError):
            await ask_user(**arguments)


async def test_consumer_cancels(tmp_path: pathlib.Path) -> None:
    """A run outlives its reader: one that stops reading after the first piece of text changes nothing."""
    script = [
        [{"text": "a "}, {"delay": 200}, {"text": "b "}, {"tool": "echo", "id": "c1", "args": {"msg": "1"}}],
        [{"text": "end"}],
    ]
    async with conversation(Setup(tools.more), script, tmp_path) as talk:
        stream = talk.agents.Stream(pb.StreamRequest(agent_id=AGENT, messages=text_input("hi")))
        async for response in stream:
            if any(chunk.WhichOneof("payload") == "text_delta" for chunk in response.chunks):
                talk.run_id = response.chunks[0].run_id
                stream.cancel()
                break
        with contextlib.suppress(asyncio.CancelledError):
            await stream.code()
        chunks = await talk.watch(0)
        recorded = phase_of("consumer_cancels")["extra"]
        assert talk.model.calls == recorded["calls"]
        assert talk.log == [lines.compact(entry) for entry in recorded["toolLog"]]
        assert lines.lines_of(chunks)[-1] == lines.finish("stop", 2)


async def test_late_reader_replay(tmp_path: pathlib.Path) -> None:
    """A second reader, after the end, is shown the same chunks again."""
    async with conversation(Setup(tools.none), [[{"text": "a b"}]], tmp_path) as talk:
        first = (await talk.take(Start(), "stream")).chunks
        second = await talk.watch(0)
        assert first == second
        recorded = phase_of("late_reader_replay")["extra"]
        assert recorded["c1"] == recorded["c2"]
        types = [str(chunk.WhichOneof("payload")).replace("_", "-") for chunk in second]
        assert types == recorded["c2"]


async def test_run_id_reuse_while_suspended(tmp_path: pathlib.Path) -> None:
    """Recorded as `runId_reuse_while_suspended`, where the second run overwrites the first one's question:
    a run id is taken for good, the second request is refused, and the question can still be answered."""
    script = [
        [{"tool": "confirm", "id": "c1", "args": {"op": "x"}}],
        [{"text": "end"}],
    ]
    setup = Setup(tools.remembered, {"run_id": "my-run-2"})
    async with conversation(setup, script, tmp_path) as talk:
        await talk.take(Start(), "stream")
        assert talk.run_id == "my-run-2"
        before = await talk.get()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await talk.agents.Generate(
                pb.GenerateRequest(
                    agent_id=AGENT,
                    messages=text_input("y"),
                    options=options_pb2.GenerateOptions(run_id="my-run-2"),
                )
            )
        assert refusal_of(refused.value) == "ALREADY_EXISTS RUN_ALREADY_EXISTS"
        assert await talk.get() == before
        answered = await talk.take(resume({"ok": True}), "stream")
        assert lines.lines_of(answered.chunks)[:2] == [
            lines.resolved("c1", "confirm", "resume"),
            lines.result("c1", "confirm", {"op": "x"}, {"done": True}),
        ]
        assert answered.result is not None
        assert answered.result.text == "end"
        listed = await talk.runs.ListRuns(run_service_pb2.ListRunsRequest())
        assert [(run.run_id, run.state) for run in listed.runs] == [("my-run-2", run_pb2.RUN_STATE_SUCCEEDED)]


def callbacks(told: list[str]) -> dict[str, Any]:
    """Callbacks that note what they are told, as the recordings have it."""
    return {
        "on_chunk": lambda chunk: told.append(f"chunk:{chunk.type}"),
        "on_step_finish": lambda step: told.append(f"step:{step.finish_reason}"),
        "on_finish": lambda end: told.append(f"finish:{end.finish_reason}:steps{len(end.steps)}"),
    }


def seen(told: list[str], recorded: list[str]) -> list[str]:
    """What was told, without the types of chunks that the reference's callbacks do not see (ours see
    all) and with runs of deltas as one."""
    known = [one for one in told if one in recorded or not one.startswith("chunk:")]
    return [one for one, before in zip(known, ["", *known], strict=False) if one != before]


async def test_callbacks_order_generate(tmp_path: pathlib.Path) -> None:
    """Recorded as `callbacks_order_generate`: chunks, then the step they belong to, then the end."""
    script = [
        [{"text": "a "}, {"tool": "echo", "id": "c1", "args": {"msg": "1"}}],
        [{"text": "end"}],
    ]
    told: list[str] = []
    async with (
        conversation(Setup(tools.more), script, tmp_path) as talk,
        Client(talk.address) as client,
    ):
        await client.agent(AGENT).generate("hi", **callbacks(told))
    recorded = phase_of("callbacks_order_generate")["extra"]["cb"]
    assert seen(told, recorded) == seen(recorded, recorded)


async def test_callbacks_on_suspend(tmp_path: pathlib.Path) -> None:
    """Recorded as `callbacks_on_suspend`: a run that parks has ended no step and has not finished; both
    are told after the approval."""
    script = [[{"tool": "echo", "id": "c1", "args": {"msg": "1"}}], [{"text": "end"}]]
    told: list[str] = []
    later: list[str] = []
    async with (
        conversation(Setup(tools.more), script, tmp_path) as talk,
        Client(talk.address) as client,
    ):
        agent = client.agent(AGENT)
        parked = await agent.generate("hi", require_tool_approval=True, **callbacks(told))
        assert parked.finish_reason == "suspended"
        await agent.approve(parked.pending_calls[0], **callbacks(later))
    recorded = phase_of("callbacks_on_suspend")["extra"]["cb"]
    assert seen(told, recorded) == seen(recorded, recorded)
    ends = [one for one in later if not one.startswith("chunk:")]
    assert ends == ["step:tool-calls", "step:stop", "finish:stop:steps2"]
