"""Metrics, over OTLP and on the page for Prometheus."""

import asyncio
import re
import socket
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from entracte import Client
from entracte_server import Agent, App, tool
from entracte_server.engine import keeper, upkeep
from entracte_server.testing import scripted, serve
from tests.rpc.support import once, until
from tests.stores import default_store
from tests.telemetry.collector import Collector


@tool(requires_approval=True)
async def pay(amount: int) -> dict[str, int]:
    """Pays."""
    return {"paid": amount}


@tool
async def broken() -> None:
    """Breaks."""
    raise RuntimeError("broken")


USED = {"finish": {"reason": "stop", "usage": {"input": 20, "output": 5, "reasoning": 2}}}


def app() -> App:
    """Agents for every end of a run."""
    paying = once({"tool": "pay", "id": "c1", "args": {"amount": 7}}, then="Paid.")
    breaking = once({"tool": "broken", "id": "c1", "args": {}}, then="It broke.")
    return App(
        agents=[
            Agent(id="talks", model=scripted([[{"text": "Hello."}, USED]])),
            Agent(id="pays", model=paying, tools=[pay]),
            Agent(id="breaks", model=breaking, tools=[broken]),
            Agent(id="fails", model=scripted([[{"throw": "no"}]])),
        ]
    )


def free_port() -> int:
    """A port that is free, and the next one, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


async def page(port: int) -> str:
    """What Prometheus would read."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text: str = response.read().decode()
            return text

    return await asyncio.to_thread(read)


def sample(text: str, name: str, *labels: str) -> float:
    """The value of the one series of this name with these labels."""
    found = [
        line
        for line in text.splitlines()
        if line.startswith(f"{name}{{") and all(label in line for label in labels)
    ]
    assert len(found) == 1, found or text
    return float(found[0].rpartition(" ")[2])


@pytest.mark.usefixtures("each_store")
async def test_what_happens_is_counted(collector: Collector) -> None:
    store: Any = default_store()
    async with serve(app(), telemetry=True, **store) as server, Client(server.address) as client:
        await client.agent("talks").generate("Hi", telemetry={"is_enabled": False})
        parked = [await client.agent("pays").generate("Pay.") for _ in range(3)]
        await client.agent("pays").approve(parked[0].pending_calls[0])
        await client.agent("pays").decline(parked[1].pending_calls[0])
        await client.runs.cancel(parked[2].run_id, wait=True)
        await client.agent("breaks").generate("Break.")
        await client.agent("fails").generate("Fail.")
    total = collector.total
    assert total("entracte.runs.started") == 6
    assert total("entracte.runs.started", gen_ai__agent__name="pays") == 3
    assert total("entracte.runs.parked") == 3
    assert total("entracte.runs.ended") == 6
    assert total("entracte.runs.ended", entracte__run__state="succeeded") == 4
    assert total("entracte.runs.ended", entracte__run__state="cancelled") == 1
    assert total("entracte.runs.ended", entracte__run__state="failed", gen_ai__agent__name="fails") == 1
    assert total("entracte.runs.active") == 0
    assert total("entracte.run.duration") == 6
    assert total("entracte.steps") == total("entracte.step.duration") == 8
    assert total("entracte.pending_calls.opened", entracte__pending_call__kind="approval") == 3
    for verb in ("approve", "decline", "cancel"):
        assert total("entracte.pending_calls.decided", entracte__decision__verb=verb) == 1
    assert total("entracte.pending_call.wait") == 3
    assert total("gen_ai.invoke_agent.duration") == 9
    assert total("gen_ai.invoke_agent.duration", error__type="provider_error") == 1
    assert total("gen_ai.client.operation.duration") == 9
    assert total("gen_ai.client.operation.duration", error__type="provider_error") == 1
    assert total("gen_ai.client.operation.time_to_first_chunk") == 8
    assert total("gen_ai.client.token.usage", gen_ai__token__type="input") == 8
    assert total("gen_ai.execute_tool.duration") == 2
    assert total("gen_ai.execute_tool.duration", gen_ai__tool__name="broken", error__type="exception") == 1


async def test_prometheus_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a collector, and without spans."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    async with serve(app(), metrics_address=address) as server, Client(server.address) as client:
        result = await client.agent("talks").generate("Hi")
        text = await page(port)
        with pytest.raises(OSError, match="metrics_address"):
            async with serve(app(), metrics_address=address):
                pass
    assert result.trace_id == ""
    agent = 'gen_ai_agent_name="talks"'
    assert sample(text, "entracte_runs_started_total", agent) == 1
    assert sample(text, "entracte_runs_ended_total", agent, 'entracte_run_state="succeeded"') == 1
    assert sample(text, "entracte_runs_active", agent) == 0
    assert sample(text, "gen_ai_client_token_usage_sum", 'gen_ai_token_type="input"') == 20
    assert sample(text, "gen_ai_invoke_agent_duration_seconds_count", agent) == 1
    assert re.search(r'target_info\{.*service_name="entracte"', text)
    async with serve(app(), metrics_address=address):  # it was given back
        pass
    with pytest.raises(OSError, match="refused"):
        await page(port)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:x"])
async def test_an_address_that_is_none_is_refused_by_name(address: str) -> None:
    with pytest.raises((OSError, ValueError), match="metrics_address"):
        async with serve(app(), metrics_address=address):
            pass


async def test_what_waits_is_told_by_one_process_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keeper, "ROUND", 0.05)
    monkeypatch.setattr(upkeep, "BACKLOG_SECONDS", 0.05)
    store = tmp_path / "entracte.db"
    port = free_port()
    ports = [port, port + 1]
    agent = 'gen_ai_agent_name="pays"'

    async def told() -> list[float | None]:
        """What each process tells."""
        texts = [await page(port) for port in ports]
        return [
            sample(t, "entracte_pending_calls", agent) if "\nentracte_pending_calls{" in t else None
            for t in texts
        ]

    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serve(app(), store=store, metrics_address=f"127.0.0.1:{p}"))
            for p in ports
        ]
        client = await stack.enter_async_context(Client(servers[0].address))
        parked = [await client.agent("pays").generate("Pay.") for _ in range(2)]

        async def is_told(calls: int) -> bool:
            return sorted(await told(), key=str) == [float(calls), None]

        await until(lambda: is_told(2), "both are told")
        pages = [await page(p) for p in ports]
        assert sum("\nentracte_pending_calls_age_seconds{" in text for text in pages) == 1
        for run in parked:
            await client.agent("pays").decline(run.pending_calls[0])
        await until(lambda: is_told(0), "none is left")
