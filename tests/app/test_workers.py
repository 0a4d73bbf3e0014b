"""`entracte serve --workers N` as a person starts it: real workers on one address and one database."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from entracte import Client
from entracte_server.app import healthcheck
from entracte_server.app.reserving import reserve
from tests.app import processes
from tests.app.processes import gone, until
from tests.app.test_reserving import has_ipv6

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"grpc.use_local_subchannel_pool": 1}
"""A connection of its own for each client, which one worker gets."""


class Served:
    """A server of several processes that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    def output(self) -> str:
        """What all its processes printed so far."""
        return (self.folder / "output").read_text()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of an event, oldest first."""
        lines = [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    @property
    def address(self) -> str:
        """Where it says it serves."""
        return self.output.partition("Entracte serves on ")[2].partition(",")[0]

    @property
    def pids(self) -> dict[int, int]:
        """The newest worker at each place that became ready."""
        return {line["worker"]: line["pid"] for line in self.logged("worker_ready")}

    @property
    def all_pids(self) -> set[int]:
        """All workers there have been."""
        return {line["pid"] for line in self.logged("worker_ready")}

    async def started(self) -> None:
        """Until people were told so."""
        await until(
            lambda: "Try: entracte chat" in self.output or self.process.poll() is not None,
            lambda: self.output,
        )
        assert self.process.poll() is None, self.output
        await until(lambda: len(self.pids) == 2, lambda: self.output)

    async def ended(self) -> int:
        """The exit code, once all its processes are gone."""
        await until(lambda: self.process.poll() is not None, lambda: self.output)
        await until(lambda: gone(*self.all_pids), lambda: self.output)
        return self.process.returncode


@asynccontextmanager
async def serving(
    folder: Path,
    *options: str,
    target: str = "tests.app.agents:app",
    address: str = "127.0.0.1:0",
    environment: Mapping[str, str] | None = None,
    workers: int = 2,
) -> AsyncIterator[Served]:
    """`entracte serve` with two workers; they are gone at the end, however the test goes."""
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [
                sys.executable,
                "-m",
                "entracte_server.app.cli",
                "serve",
                target,
                "--address",
                address,
                *options,
            ],
            cwd=ROOT,
            env={
                **processes.environment(),
                "ENTRACTE_STORE": f"sqlite:///{folder}/entracte.db",
                "ENTRACTE_WORKERS": str(workers),
                "WORKERS_TEST": str(folder),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    it = Served(process, folder)
    try:
        yield it
    finally:
        process.kill()
        process.wait()
        for pid in it.all_pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


async def pid_behind(client: Client) -> int:
    """Which process serves a client."""
    result = await client.agent("where").generate("Where?")
    return cast(int, result.steps[0].tool_results[0].result)


async def clients_of_both(it: Served, stack: AsyncExitStack) -> tuple[Client, Client]:
    """Two clients, each of a worker of its own: of 1, of 2."""
    found: dict[int, Client] = {}
    for _ in range(60):  # each is as likely as the other: all of them at one worker does not happen
        client = await stack.enter_async_context(Client(it.address, channel_options=ALONE))
        found.setdefault(await pid_behind(client), client)
        if len(found) == 2:
            return found[it.pids[1]], found[it.pids[2]]
    raise AssertionError(f"all connections are at {found}")


async def test_a_server_of_several_processes_lives_and_ends(tmp_path: Path) -> None:
    """It says once where it is, both workers serve, a dead one is replaced, clients of the dead go on
    with the others, and it ends well."""
    async with serving(tmp_path) as it, AsyncExitStack() as stack:
        await it.started()
        one, two = await clients_of_both(it, stack)
        assert await asyncio.to_thread(healthcheck.main, [it.address]) == 0
        await until(lambda: {line["worker"] for line in it.logged("rpc")} == {1, 2}, lambda: it.output)
        dead = it.pids[1]
        os.kill(dead, signal.SIGKILL)
        assert await pid_behind(one) != dead
        await until(lambda: it.pids[1] != dead, lambda: it.output)
        assert await pid_behind(two) == it.pids[2]
        it.process.send_signal(signal.SIGTERM)
        assert await it.ended() == 0
        assert it.output.count("Entracte serves on ") == 1
        assert it.output.count("2 workers") == 1
        assert it.output.count("Stopping: ") == 1
        assert "Traceback" not in it.output
        reserve(it.address).close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        (
            "from entracte_server import Agent, App\napp = App(agents=[Agent(id='a', model='openai/x')])",
            "OPENAI_API_KEY",
        ),
    ],
    ids=["import", "key"],
)
async def test_what_is_wrong_is_said_as_by_one_process(tmp_path: Path, code: str, words: str) -> None:
    """Once, in the same words, with the same exit code."""
    (tmp_path / "broken.py").write_text(code)
    environment = {"PYTHONPATH": str(tmp_path)}
    said = []
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        async with serving(folder, target="broken:app", workers=workers, environment=environment) as it:
            said.append((await it.ended(), it.output))
    assert said[0][1].count(words) == 1
    assert re.sub(r"line \d+", "", said[1][1]) == re.sub(r"line \d+", "", said[0][1])
    assert said[0][0] == said[1][0] != 0


async def test_where_another_server_shares_its_port_it_does_not_start(tmp_path: Path) -> None:
    """Otherwise each would get half of the connections."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        async with serving(tmp_path, address=address) as it:
            assert await it.ended() == 1
            assert it.output == f"error: the address {address} is in use\n"


async def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    """They stop gracefully, and the address is free for the next."""
    async with serving(tmp_path) as it:
        await it.started()
        it.process.kill()
        await it.ended()
        reserve(it.address).close()
        assert "Traceback" not in it.output


async def test_work_gets_its_time_when_the_server_stops(tmp_path: Path) -> None:
    """A tool that runs ends within the grace time, while nothing listens any more; its client is told to
    come again, and finds what came of it at the next server."""

    def began() -> list[int]:
        return [int(path.name.removeprefix("began-")) for path in tmp_path.glob("began-*")]

    async with serving(tmp_path) as it:
        await it.started()
        address = it.address
        async with Client(address) as client:
            running = asyncio.create_task(client.agent("patient").generate("Go.", run_id="r"))
            await until(began, lambda: it.output)
            it.process.send_signal(signal.SIGTERM)
            await until(lambda: not listens(address), lambda: it.output)
            assert not gone(*began())
            (tmp_path / "go").touch()
            assert await it.ended() == 0
            async with serving(tmp_path, address=address, workers=1):
                result = await asyncio.wait_for(running, 40)
    assert result.text == "I look. Done."
    assert [r.result for step in result.steps for r in step.tool_results] == began()


def listens(address: str) -> bool:
    """Whether anybody does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionError:
        return False
    return True


async def test_new_workers_take_over_under_traffic(tmp_path: Path) -> None:
    """On SIGHUP, without a call that fails for those who use the SDK: of clients that stay connected, that
    come for the first time, and that have a stream open."""
    async with serving(tmp_path, environment={"ENTRACTE_GRACE": "1"}) as it, AsyncExitStack() as stack:
        await it.started()
        before = it.all_pids
        over = asyncio.Event()

        async def stay() -> int:
            calls = 0
            async with Client(it.address, channel_options=ALONE) as client:
                while not over.is_set():
                    assert await pid_behind(client) in it.all_pids
                    calls += 1
            return calls

        async def come_and_go() -> int:
            calls = 0
            while not over.is_set():
                async with Client(it.address, channel_options=ALONE) as client:
                    await client.runs.list_page(page_size=1)
                calls += 1
            return calls

        callers = [asyncio.create_task(work()) for work in (stay, stay, come_and_go, come_and_go)]
        parked = []
        for client in await clients_of_both(it, stack):
            stream = client.agent("gated").stream("Go.")
            chunks = [chunk async for chunk in stream]
            parked.append((client, stream.run_id, chunks))
        watches = [
            asyncio.create_task(client.runs.watch(run_id, until_finished=True).result())
            for client, run_id, _ in parked
        ]
        it.process.send_signal(signal.SIGHUP)
        await until(
            lambda: it.logged("workers_restarted") or any(c.done() for c in callers), lambda: it.output
        )
        over.set()
        assert all(calls > 0 for calls in await asyncio.wait_for(asyncio.gather(*callers), 40))
        assert not before & {*it.pids.values()}
        for client, _, chunks in parked:
            (call,) = [chunk for chunk in chunks if chunk.type == "tool-call-approval"]
            result = await client.agent("gated").approve(call)
            assert result.steps[0].tool_results[0].result in it.pids.values()
        for watch in watches:
            assert (await asyncio.wait_for(watch, 20)).text == "I look. Done."
        assert not it.logged("worker_died")


async def test_runs_of_one_worker_are_served_by_the_other(tmp_path: Path) -> None:
    """Started at one, followed and decided at the other; when the one that executes it is killed, the
    other takes over, and readers at both see one stream without a gap."""
    options = ["--store", f"sqlite:///{tmp_path}/other.db"]
    async with serving(tmp_path, *options) as it, AsyncExitStack() as stack:
        await it.started()
        one, two = await clients_of_both(it, stack)

        started = one.agent("gated").stream("Go.")
        chunks = [chunk async for chunk in started]
        follows = asyncio.create_task(_all(two.runs.watch(started.run_id, until_finished=True)))
        (call,) = [chunk for chunk in chunks if chunk.type == "tool-call-approval"]
        result = await two.agent("gated").approve(call)
        assert result.text == "I look. Done."
        assert result.steps[0].tool_results[0].result == it.pids[2]
        seen = await asyncio.wait_for(follows, 20)
        assert [chunk.sequence for chunk in seen] == list(range(1, len(seen) + 1))
        assert seen[: len(chunks)] == chunks

        owner = it.pids[1]
        here = asyncio.create_task(_all(one.agent("patient").stream("Go.", run_id="p")))
        await until(lambda: (tmp_path / f"began-{owner}").exists(), lambda: it.output)
        there = asyncio.create_task(_all(two.runs.watch("p")))
        os.kill(owner, signal.SIGKILL)
        await until(lambda: len([*tmp_path.glob("began-*")]) == 2, lambda: it.output)
        (tmp_path / "go").touch()
        for reader in (here, there):
            seen = await asyncio.wait_for(reader, 20)
            assert [chunk.sequence for chunk in seen] == list(range(1, len(seen) + 1))
            assert [chunk.type for chunk in seen].count("tool-result") == 1
        assert (await two.runs.get("p")).state == "succeeded"


async def test_runs_of_a_dead_worker_do_not_wait_for_its_lease(tmp_path: Path, postgres_url: str) -> None:
    """Its supervisor knows at once; on PostgreSQL nothing else could tell."""
    environment = {"ENTRACTE_LEASE": "3600", "ENTRACTE_STORE": postgres_url}
    async with serving(tmp_path, environment=environment) as it, AsyncExitStack() as stack:
        await it.started()
        one, two = await clients_of_both(it, stack)
        here = asyncio.create_task(_all(one.agent("patient").stream("Go.", run_id="p")))
        owner = it.pids[1]
        await until(lambda: (tmp_path / f"began-{owner}").exists(), lambda: it.output)
        os.kill(owner, signal.SIGKILL)
        await until(lambda: len([*tmp_path.glob("began-*")]) == 2, lambda: it.output)
        (tmp_path / "go").touch()
        seen = await asyncio.wait_for(here, 20)
        assert [chunk.sequence for chunk in seen] == list(range(1, len(seen) + 1))
        assert (await two.runs.get("p")).state == "succeeded"


async def _all(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_workers_serve_tls_over_ipv6(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    environment = {"ENTRACTE_TLS_CERTIFICATE": str(certificate), "ENTRACTE_TLS_KEY": str(key)}
    async with serving(tmp_path, address="[::1]:0", environment=environment) as it:
        await it.started()
        async with Client(it.address, ca_certificates=certificate) as client:
            assert await pid_behind(client) in it.pids.values()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for ::1 that nobody else signed, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:::1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words.split(), *names, *files], check=True, capture_output=True)
    return certificate, key
