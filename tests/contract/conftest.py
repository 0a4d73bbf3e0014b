"""pytest-grpc's fixtures, but for the server: its own is synchronous, ours runs on a loop in a thread.

`grpc_create_channel` and `grpc_channel` are the plugin's: a blocking client over a real connection.
"""

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
import structlog

from entracte_server import App
from entracte_server.testing import TestServer, serve
from tests.contract.support import Client
from tests.rpc.support import agents, talking


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Settings of the module's server."""
    return {}


@pytest.fixture(scope="module")
def grpc_server(settings: dict[str, Any]) -> Iterator[TestServer]:
    """The real server on a free port, for one module of tests."""
    started: Future[tuple[TestServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        stop = asyncio.Event()
        async with serve(App(agents=agents(), models=[talking()]), log_level="error", **settings) as server:
            started.set_result((server, asyncio.get_running_loop(), stop))
            await stop.wait()

    def body() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    thread = threading.Thread(target=body, name="server", daemon=True)
    thread.start()
    server, loop, stop = started.result(20)
    yield server
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    structlog.reset_defaults()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def grpc_addr(grpc_server: TestServer) -> str:
    """Where the plugin's channel connects to."""
    return grpc_server.address


@pytest.fixture(scope="module")
def grpc_stub_cls() -> type[Client]:
    """What the plugin's `grpc_stub` is."""
    return Client


@pytest.fixture
def client(grpc_stub: Client, grpc_channel: grpc.Channel) -> Client:
    """A blocking client of the module's server."""
    assert grpc_stub.channel is grpc_channel
    return grpc_stub
