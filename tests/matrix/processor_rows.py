"""Processors, each of which keeps some state or holds something back."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from entracte_server import Processor, text_message
from entracte_server.processors import Answer, LlmRequest
from tests.matrix.course import ANSWER, Course, World
from tests.matrix.prompt_rows import constant
from tests.matrix.row import Row, Seen


class Marks(Processor):
    """Tells the model how often it was asked."""

    name = "marks"

    class Parameters(BaseModel):
        sign: str = ""

    def process_llm_request(self, request: LlmRequest) -> LlmRequest:
        self.state["times"] = times = self.state.get("times", 0) + 1
        mark = text_message("user", f"{self.parameters.sign} {times}")
        return request.replace(messages=(*request.messages, mark))


class Shouts(Processor):
    """Writes one letter as a capital."""

    name = "shouts"
    can_rewrite = True

    def process_output_step(self, answer: Answer) -> Answer:
        return answer.replace(text=answer.text.replace("s", "S"))


class Strict(Processor):
    """Sends back what it takes for bad."""

    name = "strict"
    can_veto = True

    def process_output_step(self, answer: Answer) -> None:
        if "bad" in answer.text:
            self.abort("that was bad", retry=True)


class Stops(Processor):
    """Stops the run at its answer."""

    name = "stops"
    can_veto = True

    def process_output_step(self, answer: Answer) -> None:
        if not answer.tool_calls and answer.text == ANSWER:
            self.abort("no answer", metadata={"step": answer.number})


def _registered(made: type[Processor]) -> Callable[[World], Mapping[str, Any]]:
    return lambda _: {"processors": [made()]}


def _marked(seen: Seen) -> None:
    """With its parameters, and the state it has from the servers before."""
    times = []
    for request in seen.requests():
        sign, _, number = request.messages[-1].text.partition(" ")
        assert sign == "MARK"
        times.append(int(number))
    assert sorted(set(times)) == list(range(1, times[-1] + 1))
    assert times == sorted(times)


def _shouted(seen: Seen) -> None:
    for texts in seen.texts("assistant", since=1):
        assert not any("s" in text for text in texts)
    assert seen.result.text.startswith("S1 S2 ")


def _bad(course: Course) -> None:
    for number, step in enumerate(("plain", "end")):
        course.insert(step, f"bad{number}", {"text": "bad "}, counts=False)
        course.call(f"bad{number}", "extra", f"bad{number}")


def _sent_back(seen: Seen) -> None:
    """Before the second suspension and after it; nothing of it is shown, kept or executed."""
    ended_early = seen.result.stop_cause in ("max-steps", "stop-when", "hook")
    assert len(seen.of("tripwire")) == (1 if ended_early else 2)
    assert "bad" not in seen.result.text
    assert not {"bad0", "bad1"} & seen.entered().keys()
    told = [[text for text in texts if "that was bad" in text] for texts in seen.texts("user", since=1)]
    assert any(told)


def _tripped(seen: Seen) -> None:
    assert (seen.result.finish_reason, seen.result.stop_cause) == ("tripwire", "tripwire")
    tripwire = seen.result.tripwire
    assert tripwire is not None
    assert (tripwire.processor_id, tripwire.reason) == ("stops", "no answer")
    assert ANSWER not in seen.result.text


ROWS = [
    Row(
        "input_processors",
        _marked,
        constant(input_processors=[{"name": "marks", "parameters": {"sign": "MARK"}}]),
        app=_registered(Marks),
    ),
    Row("output_processors", _shouted, constant(output_processors=["shouts"]), app=_registered(Shouts)),
    Row(
        "output_processors:tripwire",
        _tripped,
        constant(output_processors=["stops"]),
        app=_registered(Stops),
        ending="failed",
    ),
    Row(
        "max_processor_retries",
        _sent_back,
        constant(output_processors=["strict"], max_processor_retries=1),
        course=_bad,
        app=_registered(Strict),
    ),
]
