"""One tripwire, at whatever point a processor stops a run: the same chunk, result, reason and cause, no tool
called, and nothing that was stopped shown, returned or stored."""

import asyncio
from typing import Any

import pytest

from entracte import EntracteError
from entracte_server import Agent, App, Processor, ToolContext, tool
from entracte_server.processors import (
    Answer,
    Input,
    LlmRequest,
    Result,
    StepInfo,
    StreamInfo,
    TextDelta,
    ToolOutput,
)
from tests.processors.support import ADD, CALLED, add, kinds, served, shown

pytestmark = pytest.mark.usefixtures("each_store")

SAYS = [[{"text": "the secret is seven"}, ADD], [{"text": "done"}]]
METADATA = {"score": 1, "n": [2**64]}


class Stops(Processor):
    """Stops at one point, saying which."""

    name = "stops"
    can_veto = True
    retry = False

    def stop(self, hook: str) -> None:
        if hook == self.at:
            self.abort(f"at {hook}", retry=self.retry, metadata=METADATA)

    at = ""

    async def process_input(self, given: Input) -> None:
        self.stop("process_input")

    def process_input_step(self, step: StepInfo) -> None:
        self.stop("process_input_step")

    async def process_llm_request(self, request: LlmRequest) -> None:
        self.stop("process_llm_request")

    async def process_output_stream(self, parts: list[Any], info: StreamInfo) -> None:
        if any(isinstance(part, TextDelta) and "seven" in part.text for part in parts):
            self.stop("process_output_stream")

    async def end_output_stream(self, info: StreamInfo) -> None:
        self.stop("end_output_stream")

    def process_llm_response(self, answer: Answer) -> None:
        self.stop("process_llm_response")

    async def process_output_step(self, answer: Answer) -> None:
        self.stop("process_output_step")

    async def process_tool_result(self, result: ToolOutput) -> None:
        self.stop("process_tool_result")

    async def process_output_result(self, result: Result) -> None:
        self.stop("process_output_result")


def stops(at: str, *, retry: bool = False) -> Processor:
    made = Stops()
    made.at, made.retry = at, retry
    return made


INPUT = ["process_input", "process_input_step", "process_llm_request"]
ANSWER = ["process_output_stream", "end_output_stream", "process_llm_response", "process_output_step"]


@pytest.mark.parametrize("at", [*INPUT, *ANSWER, "process_tool_result", "process_output_result"])
async def test_it_is_the_same_everywhere(at: str) -> None:
    processor = stops(at)
    async with served(SAYS, known=[processor]) as it:
        result, chunks = await it.told(
            input_processors=["stops"], output_processors=["stops"], include_raw_chunks=True
        )
        assert (result.finish_reason, result.stop_cause) == ("tripwire", "tripwire")
        assert result.error is None
        tripwire = result.tripwire
        assert tripwire is not None
        assert (tripwire.reason, tripwire.processor_id, tripwire.retry) == (f"at {at}", "stops", False)
        assert tripwire.metadata == METADATA
        assert result.steps[-1].tripwire == tripwire
        assert result.steps[-1].finish_reason == "tripwire"
        assert kinds(chunks)[-3:] == ["tripwire", "step-finish", "finish"]
        [shown_one] = [chunk for chunk in chunks if chunk.type == "tripwire"]
        assert shown_one.tripwire == tripwire
        run = await it.client.runs.get(result.run_id)
        assert (run.state, run.finish_reason, run.stop_cause) == ("succeeded", "tripwire", "tripwire")

        called = at in ("process_tool_result", "process_output_result")
        assert ([(1, 2)] if called else []) == CALLED
        if at in INPUT:
            assert it.model.requests == []
            assert result.usage.total_tokens == 0
        else:
            assert result.usage.total_tokens == (30 if at == "process_output_result" else 15) or (
                at == "process_output_stream"
            )
        texts = {"process_tool_result": "the secret is seven", "process_output_result": "the secret is seven"}
        assert result.text == shown(chunks) == texts.get(at, "")
        assert "done" not in repr(result)


@pytest.mark.parametrize("at", ANSWER)
async def test_what_was_stopped_is_nowhere(at: str) -> None:
    """Neither in what was sent, nor in any result, nor in what is stored."""
    async with served(SAYS, known=[stops(at)], output_processors=["stops"]) as it:
        result, chunks = await it.told()
        assert "secret" not in repr(chunks)
        assert "secret" not in repr(result)
        assert result.tool_calls == ()
        assert [message.role for message in result.messages] == ["user"]


@pytest.mark.parametrize("at", ANSWER)
async def test_a_retry_is_another_attempt(at: str) -> None:
    """The answer that was sent back is void, the model is told why, and what it cost counts."""
    model = [[{"text": "seven"}, ADD], [{"text": "eight"}]]

    class Once(Stops):
        name = "once"

        def stop(self, hook: str) -> None:
            if hook == at and not self.state.get("done"):
                self.state["done"] = True
                self.abort("say another number", retry=True)

    async with served(
        model, known=[Once()], output_processors=["once"], max_processor_retries=1, instructions="Count."
    ) as it:
        result, chunks = await it.told("how many?")
        assert (result.text, result.finish_reason, result.stop_cause) == ("eight", "stop", "model-finished")
        assert result.tripwire is None
        assert len(result.steps) == 1
        assert CALLED == []
        assert shown(chunks) == "eight"
        assert it.asked() == [
            ("system", "Count."),
            ("user", "how many?"),
            ("user", "<processor>\nsay another number\n</processor>"),
        ]
        assert [(chunk.step, chunk.attempt) for chunk in chunks if chunk.type == "step-start"] == [
            (1, 1),
            (1, 2),
        ]
        [tripwire] = [chunk for chunk in chunks if chunk.type == "tripwire"]
        assert (tripwire.attempt, tripwire.tripwire.retry) == (1, True)
        if at != "process_output_stream":
            assert result.usage.total_tokens == 30
        assert [message.role for message in result.messages] == ["user", "assistant"]


async def test_retries_are_bounded_and_feedback_does_not_pile_up() -> None:
    """Of several, the model is told the last: it does not see the answers the others were about."""

    class Counts(Processor):
        name = "counts"
        can_veto = True

        async def process_output_step(self, answer: Answer) -> None:
            self.state["seen"] = self.state.get("seen", 0) + 1
            assert answer.retry_count == self.state["seen"] - 1
            self.abort(f"no {self.state['seen']}", retry=True)

    async with served([[{"text": "bad"}]], known=[Counts()]) as it:
        result, chunks = await it.told(output_processors=["counts"], max_processor_retries=3)
        assert result.finish_reason == "tripwire"
        assert result.tripwire is not None
        assert (result.tripwire.reason, result.tripwire.retry) == ("no 4", True)
        assert len(it.model.requests) == 4
        assert [len(request.messages) for request in it.model.requests] == [1, 2, 2, 2]
        assert it.asked() == [("user", "hi"), ("user", "<processor>\nno 3\n</processor>")]
        assert result.usage.total_tokens == 60
        assert shown(chunks) == result.text == ""
        result, _ = await it.told(output_processors=["counts"])
        assert result.tripwire is not None
        assert result.tripwire.reason == "no 1"  # without the option there is none


async def test_no_retry_where_there_is_no_answer_to_send_back() -> None:
    for at in (*INPUT, "process_tool_result", "process_output_result"):
        async with served(SAYS, known=[stops(at, retry=True)]) as it:
            result, _ = await it.told(
                input_processors=["stops"], output_processors=["stops"], max_processor_retries=5
            )
            assert result.finish_reason == "tripwire"
            assert len(it.model.requests) <= 2


async def test_siblings_of_a_tool_whose_result_is_stopped_end_first() -> None:
    ended: list[str] = []

    @tool
    async def slow(ctx: ToolContext) -> str:
        await asyncio.sleep(0.1)
        ended.append("slow")
        return "slow"

    @tool(requires_approval=True)
    async def gated() -> str:
        return "never"

    class NoThree(Processor):
        name = "no-three"

        async def process_tool_result(self, result: ToolOutput) -> None:
            if result.value == 3:
                self.abort("three")

    parts = [ADD, {"tool": "slow", "id": "s", "args": {}}, {"tool": "gated", "id": "g", "args": {}}]
    async with served([parts], tools=[add, slow, gated], output_processors=[NoThree()]) as it:
        result, _ = await it.told()
        assert result.finish_reason == "tripwire"
        assert result.pending_calls == ()
        assert ended == ["slow"]
        assert [r.tool_call_id for r in result.tool_results] == ["s"]
        waiting = [call async for call in it.client.inbox.list()]
        assert not waiting


async def test_a_name_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="agent a: there is no processor 'gone'; there are: stops"):
        App(agents=[Agent(id="a", model="x/y", input_processors=["gone"])], processors=[stops("")])
    async with served([[{"text": "x"}]], known=[stops("")]) as it:
        with pytest.raises(EntracteError) as refused:
            await it.agent.generate("hi", output_processors=["stops", "gone"])
        assert {v.field for v in refused.value.violations} == {"options.output_processors.processors[1].name"}
