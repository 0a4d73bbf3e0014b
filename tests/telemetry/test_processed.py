"""Spans of runs with processors have nothing that did not pass."""

import json

from entracte_server import Agent, App, Moderation, PiiFilter
from entracte_server.testing import scripted
from tests.processors.support import ADD, add
from tests.telemetry.collector import Collector
from tests.telemetry.test_spans import ask


async def test_only_what_passed_is_recorded(collector: Collector) -> None:
    model = scripted([[{"text": "It is joe@example.com. "}, ADD], [{"text": "Or ann@example.com."}]])
    judge = scripted([[{"text": '{"categories": {}, "reason": "ann@example.com"}'}]])
    chain = [Moderation(model=judge), PiiFilter()]
    agent = Agent(id="support", model=model, tools=[add], input_processors=chain, output_processors=chain)
    telemetry = {"record_inputs": True, "record_outputs": True}
    await ask(App(agents=[agent]), collector, telemetry=telemetry, context=["I am joe@example.com"])
    root = collector.one("invoke_agent")
    [answer] = json.loads(root.attributes["gen_ai.output.messages"])
    assert answer["parts"] == [{"type": "text", "content": "Or [EMAIL]."}]
    assert "[EMAIL]" in repr([span.attributes for span in collector.named("chat ")])
    assert "example.com" not in repr([span.attributes for span in collector.spans])
