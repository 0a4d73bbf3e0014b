"""The page about models: its code runs, its tables are those of the code."""

import ast
import re
import tomllib
from types import SimpleNamespace
from typing import Any

from entracte import CustomChunk
from entracte_server import Agent
from entracte_server.app.settings import Settings
from entracte_server.models import KNOWN_PROVIDERS, ProviderSettings
from entracte_server.testing import scripted
from tests.options.support import agent_of
from tests.project.test_docs import ROOT, run, snippets

PAGE = (ROOT / "docs/models.md").read_text("utf-8")


def rows(header: str) -> list[list[str]]:
    """The cells of the table that begins with this header."""
    table = PAGE.split(f"| {header} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_providers() -> None:
    found = {row[0].strip("`"): row[1:] for row in rows("Provider | Key | Interface")}
    assert set(found) == set(KNOWN_PROVIDERS)
    for name, (key, interface) in found.items():
        known = KNOWN_PROVIDERS[name]
        assert key.strip("`") == (known.key_variable if known.requires_key else "none")
        assert ("Responses" in interface) == (known.api == "responses")


def test_the_keys_of_a_provider() -> None:
    found = [name for row in rows("Key | Default | What it says") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted([*found, "name"]) == sorted(ProviderSettings.__struct_fields__)


def test_the_settings() -> None:
    [block] = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    local, gateway = Settings(**tomllib.loads(block)).provider_settings()
    assert (local.api, local.requires_key, gateway.api) == ("chat", False, "responses")
    assert gateway.key_variable == "GATEWAY_KEY"


async def test_the_code() -> None:
    options, models, waiting, media = snippets("docs/models.md")
    made = run(models)["support"]
    assert isinstance(made, Agent)
    assert len(made.models) == 2

    async def play(agent: Any, code: str, **names: Any) -> Any:
        compiled = compile(code, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        scope = {"agent": agent, **names}
        await eval(compiled, scope)
        return SimpleNamespace(**scope)

    limited = {"throw": "slow down", "status": 429, "retryable": True, "retryAfter": 0.01}
    said: list[str] = []
    model = scripted([[{"text": "Yes."}], [limited], [{"text": "Done."}], [{"text": "A cat."}]])
    async with agent_of(model) as agent:
        assert (await play(agent, options)).result.text == "Yes."
        scope = await play(agent, waiting, print=said.append)
        assert said == ["waiting 0.01 s for scripted/script"]
        assert not isinstance(scope.chunk, CustomChunk)
        assert (await play(agent, media, invoice=b"%PDF")).result.text == "A cat."
    assert model.requests[0].settings.seed == 7
    assert [type(part).__name__ for part in model.requests[-1].messages[-1].parts] == [
        "TextPart",
        "ImagePart",
        "FilePart",
    ]
