"""Connecting: TLS, channel options, one channel for everything."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import grpc
import grpc.aio
import pytest

import entracte
from entracte import Client
from entracte.v1 import run_service_pb2_grpc
from tests.client.fake import FakeServer, Refuse, _Runs


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that nobody else signed, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return cert, key


@asynccontextmanager
async def tls_server(certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    cert, key = certificate
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    run_service_pb2_grpc.add_RunServiceServicer_to_server(_Runs(FakeServer()), server)
    pair = (key.read_bytes(), cert.read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_tls_with_given_roots(certificate: tuple[Path, Path]) -> None:
    cert, _ = certificate
    async with tls_server(certificate) as address:
        for roots in (cert, str(cert), cert.read_bytes()):
            async with Client(address, ca_certificates=roots, api_key="secret") as client:
                assert (await client.runs.get("r1")).run_id == "r1"
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        async with Client(address, credentials=credentials) as client:
            assert (await client.runs.get("r1")).run_id == "r1"


async def test_a_server_that_cannot_be_verified_is_not_reached(certificate: tuple[Path, Path]) -> None:
    async with tls_server(certificate) as address, Client(address, tls=True) as client:
        with pytest.raises(entracte.ServerUnreachable):
            await client.runs.get("r1", timeout=5)


async def test_channel_options_may_be_added(server: FakeServer) -> None:
    options = {"grpc.max_receive_message_length": 100}
    server.result.text = "x" * 1000
    async with Client(server.address, channel_options=options) as client:
        with pytest.raises(entracte.ResourceExhausted):
            await client.agent("support").generate("Hi")
    async with Client(server.address) as client:
        assert (await client.agent("support").generate("Hi")).text == "x" * 1000


async def test_large_messages_pass(server: FakeServer, client: Client) -> None:
    text = "x" * (10 * 1024 * 1024)
    server.result.text = text
    assert (await client.agent("support").generate(text)).text == text


async def test_many_streams_share_the_channel(server: FakeServer, client: Client) -> None:
    agent = client.agent("support")
    streams = [agent.stream("Hi", run_id="r1").result() for _ in range(100)]
    assert len(await asyncio.gather(*streams)) == 100


def test_unknown_client_options_are_refused() -> None:
    with pytest.raises(TypeError, match="did you mean 'api_key'"):
        Client("localhost:1", apikey="x")  # type: ignore[call-arg]


async def test_the_same_request_is_sent_again_and_not_before_it_is_asked_for(server: FakeServer) -> None:
    async with Client(server.address, reattach_timeout=10) as client:
        await client.runs.get("r1")
        away = Refuse(reason="SERVER_STOPPING", retry_after=0.2)
        server.plans["Approve"] = [*[Refuse()] * 9, away]  # more than a stranger gets
        begun = monotonic()
        await client.agent("support").approve("p1")
        assert monotonic() - begun >= 0.2
    requests = server.asked("Approve")
    assert len(requests) == 11
    assert len({request.request_id for request in requests}) == 1


async def test_patience_ends(server: FakeServer) -> None:
    async with Client(server.address, reattach_timeout=0.3) as client:
        await client.runs.get("r1")
        server.plans["GetRun"] = [Refuse()] * 10_000
        with pytest.raises(entracte.ServerUnreachable):
            await client.runs.get("r1")
    assert len(server.asked("GetRun")) > 5
