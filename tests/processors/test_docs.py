"""The Python in the page of processors runs."""

from typing import Any

from entracte import Client
from entracte_server import Agent, App, Moderation, PiiFilter
from entracte_server.testing import scripted, serve
from tests.project.test_docs import run, snippets


async def test_the_page() -> None:
    registering, calling, writing = snippets("docs/processors.md")
    fine = scripted([[{"text": '{"categories": {}}'}]])
    app = run(registering)["app"]
    assert [processor.name for processor in app.agents["support"].input_processors] == [
        "unicode",
        "pii",
        "token-limit",
    ]
    made = run(writing)
    model = scripted([[{"text": "It costs 7 £"}], [{"text": "Your card is 4111 1111 1111 1111"}]])
    agent = Agent(
        id="support",
        model=model,
        input_processors=[made["Shouts"]()],
        output_processors=[made["NoPrices"](signs=["£"])],
        max_processor_retries=1,
    )
    served = App(agents=[agent], processors=[Moderation(model=fine), PiiFilter()])
    async with serve(served) as server, Client(server.address) as client:
        result = await client.agent("support").generate("how much?")
        assert result.text == "Your card is 4111 1111 1111 1111"
        assert [message.text for message in model.requests[1].messages] == [
            "HOW MUCH?",
            "<processor>\nDo not name prices; refer to the shop.\n</processor>",
        ]
        code = "async def main(agent):\n" + "".join(f"    {line}\n" for line in calling.splitlines())
        scope: dict[str, Any] = {}
        exec(code + "    return result", scope)
        result = await scope["main"](client.agent("support"))
        assert result.tripwire.reason == "The answer contains personal data or secrets: card."
