"""What holds when a process goes away in the middle: what had passed, what had not, and what is kept."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from entracte import Client
from entracte_server import Agent, App, Processor, StructuredOutput
from entracte_server.processors import Answer, Input, Result
from entracte_server.testing import scripted, serve
from tests.processors.support import ADD, CALLED, add
from tests.rpc.support import until
from tests.stores import default_store

pytestmark = pytest.mark.usefixtures("each_store")


class Waits(Processor):
    """Waits at one hook until it is told to go on, and counts its calls by hook."""

    name = "waits"
    can_veto = True
    at = ""
    reached = False
    go_on = False
    verdict = ""
    called: ClassVar[dict[str, int]]

    async def point(self, hook: str) -> None:
        kind = type(self)
        kind.called[hook] = kind.called.get(hook, 0) + 1
        self.state[hook] = self.state.get(hook, 0) + 1
        if hook == kind.at:
            kind.reached = True
            await until(lambda: kind.go_on, "the processor may go on", 60)
            if kind.verdict:
                self.abort(kind.verdict, retry=kind.verdict == "again" and self.state[hook] == 1)

    async def process_input(self, given: Input) -> None:
        await self.point("input")

    async def process_output_step(self, answer: Answer) -> None:
        await self.point(f"step {answer.number}")

    async def process_output_result(self, result: Result) -> None:
        await self.point("result")
        self.attach(state=dict(self.state))


def waiting(at: str, verdict: str = "") -> type[Waits]:
    """A class of its own for each test."""
    made = type("Waiting", (Waits,), {"at": at, "verdict": verdict, "called": {}})
    assert issubclass(made, Waits)
    return made


async def handed_over(
    kind: type[Waits], folder: Path, model: Any, **agent: Any
) -> tuple[Any, list[Any], Any]:
    """A run whose first process stops while the processor waits, and that a second one finishes: the
    result, all its chunks, and what the result was in between."""
    app = App(
        agents=[
            Agent(
                id="a",
                model=model,
                tools=[add],
                input_processors=["waits"],
                output_processors=["waits"],
                **agent,
            )
        ],
        processors=[kind()],
    )
    where: dict[str, Any] = default_store() or {"store": folder / "db"}
    CALLED.clear()
    async with serve(app, **where) as server, Client(server.address) as client:
        stream = client.agent("a").stream("hi")
        first = await anext(aiter(stream))
        await until(lambda: kind.reached, "the processor is reached")
        between = (await client.runs.get(first.run_id)).result
    kind.go_on = True
    async with serve(app, **where) as server, Client(server.address) as client:
        chunks = [chunk async for chunk in client.runs.watch(first.run_id)]
        result = (await client.runs.get(first.run_id)).result
    return result, chunks, between


def texts(chunks: list[Any]) -> list[str]:
    return [chunk.text for chunk in chunks if chunk.type == "text-delta"]


async def test_the_last_answer_is_held_over_a_change_of_process(tmp_path: Path) -> None:
    """It is stored and shown to nobody; the next process asks the processors of results, not the model."""
    kind = waiting("result")
    model = scripted([[{"reasoning": "hm"}, {"text": "adding "}, ADD], [{"text": "it is three"}]])
    result, chunks, between = await handed_over(kind, tmp_path, model)
    assert between.text == "adding "
    assert "three" not in repr(between)
    assert result.text == "adding it is three" == "".join(texts(chunks))
    assert len(model.requests) == 2
    assert kind.called == {"input": 1, "step 1": 1, "step 2": 1, "result": 2}
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert CALLED == [(1, 2)]
    assert result.response.ui_messages[-1].metadata["state"]["step 2"] == 1


async def test_a_held_answer_that_the_next_process_vetoes_is_gone(tmp_path: Path) -> None:
    kind = waiting("result", "no")
    result, chunks, between = await handed_over(kind, tmp_path, scripted([[{"text": "secret"}]]))
    assert result.finish_reason == "tripwire"
    assert "secret" not in repr(between) + repr(result) + repr(chunks)


async def test_an_answer_that_was_not_judged_is_asked_for_again(tmp_path: Path) -> None:
    """Nothing of the first answer was kept, so nothing of it is judged, or shown, later."""
    kind = waiting("step 1")
    model = scripted([[{"text": "one answer"}, ADD], [{"text": "another"}]])
    result, chunks, between = await handed_over(kind, tmp_path, model)
    assert between.text == ""
    assert result.text == "another" == "".join(texts(chunks))
    assert CALLED == []
    assert kind.called == {"input": 1, "step 1": 2, "result": 1}


async def test_input_that_was_not_judged_is_judged_again(tmp_path: Path) -> None:
    kind = waiting("input", "not this")
    model = scripted([[{"text": "x"}]])
    result, _, _ = await handed_over(kind, tmp_path, model)
    assert result.tripwire.reason == "not this"
    assert model.requests == []
    assert kind.called == {"input": 2}


async def test_a_verdict_is_not_changed_by_a_change_of_process(tmp_path: Path) -> None:
    """The first answer was sent back, and stays so: the next process goes on with what is left to do."""

    class Twice(Waits):
        called: ClassVar[dict[str, int]] = {}
        at = "step 1"

        async def process_output_step(self, answer: Answer) -> None:
            if answer.retry_count == 0:
                self.state["sent back"] = True
                self.abort("once more", retry=True)
            assert self.state["sent back"]
            await self.point(f"step {answer.number}")

    model = scripted([[{"text": "first"}], [{"text": "second"}], [{"text": "third"}]])
    result, chunks, between = await handed_over(Twice, tmp_path, model, max_processor_retries=1)
    assert between.text == ""
    assert result.text == "third" == "".join(texts(chunks))
    assert [len(request.messages) for request in model.requests] == [1, 2, 2]
    assert result.usage.total_tokens >= 30


PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize("passes", [True, False])
async def test_an_object_that_another_process_makes_of_a_held_answer_is_held(
    passes: bool, tmp_path: Path
) -> None:
    """The first process stops while the second model writes the object; what the next one has it write is
    shown with the answer, once, or not at all."""

    class Judges(Processor):
        name = "judges"
        can_veto = True

        async def process_output_result(self, given: Result) -> None:
            assert given.object == {"name": "Joe"}
            if not passes:
                self.abort("no names")

    said = '{"name": "Joe"}'
    second = scripted([[{"text": said}, {"delay": 600_000}], [{"text": said}]], name="scripted/second")
    output = StructuredOutput(PERSON, model=second)
    app = App(
        agents=[
            Agent(
                id="a",
                model=scripted([[{"text": "It was Joe."}]]),
                structured_output=output,
                output_processors=[Judges()],
            )
        ]
    )
    where: dict[str, Any] = default_store() or {"store": tmp_path / "db"}
    async with serve(app, **where) as server, Client(server.address) as client:
        first = await anext(aiter(client.agent("a").stream("who?")))
        await until(lambda: bool(second.requests), "the second model is asked")
    async with serve(app, **where) as server, Client(server.address) as client:
        chunks = [chunk async for chunk in client.runs.watch(first.run_id)]
        result = (await client.runs.get(first.run_id)).result
    assert result is not None
    if not passes:
        assert result.finish_reason == "tripwire"
        assert "Joe" not in repr(chunks) + repr(result)
        return
    assert (result.text, result.object) == ("It was Joe.", {"name": "Joe"})
    kinds = [chunk.type for chunk in chunks]
    assert kinds.count("object-result") == 1
    assert kinds.index("text-delta") < kinds.index("object") < kinds.index("object-result")
