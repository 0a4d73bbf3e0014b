"""The gRPC server: services, middleware, health, reflection, limits."""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from entracte.v1 import (
    agent_service_pb2,
    catalog_service_pb2,
    inbox_service_pb2,
    run_service_pb2,
    thread_service_pb2,
    worker_service_pb2,
)
from entracte_server.domain.data import Data
from entracte_server.engine.engine import Engine
from entracte_server.rpc.agent_service import AgentService
from entracte_server.rpc.call import Principal
from entracte_server.rpc.catalog_service import CatalogService
from entracte_server.rpc.inbox_service import InboxService
from entracte_server.rpc.middleware import (
    Authentication,
    CallerSpan,
    Deadline,
    Errors,
    Limits,
    Middleware,
    RequestLog,
)
from entracte_server.rpc.registration import register
from entracte_server.rpc.results import MAX_MESSAGE
from entracte_server.rpc.run_service import RunService
from entracte_server.rpc.thread_service import ThreadService
from entracte_server.rpc.worker_service import WorkerService

SERVICES = {
    "AgentService": agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"],
    "RunService": run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
    "InboxService": inbox_service_pb2.DESCRIPTOR.services_by_name["InboxService"],
    "ThreadService": thread_service_pb2.DESCRIPTOR.services_by_name["ThreadService"],
    "WorkerService": worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"],
    "CatalogService": catalog_service_pb2.DESCRIPTOR.services_by_name["CatalogService"],
}

WAITING = frozenset({"Generate"})
"""Unary RPCs that wait for a run without being asked to."""

STREAMING = frozenset(
    method.name
    for descriptor in SERVICES.values()
    for method in descriptor.methods
    if method.server_streaming
)

_NO_END = 7 * 24 * 3600.0


class ServerSettings(Data, frozen=True):
    """How RPCs are served. Times are in seconds.

    tls_certificate, tls_key: PEM texts; both or none.
    api_keys: principals by API key; without any, everybody is `local`.
    streams_per_principal: how many RPCs of one principal may be open.
    quick_deadline, waiting_deadline: bounds of unary RPCs without a deadline of their own, those
    that answer at once and those that wait for a run.
    connection_age: how long a connection takes new calls; then its client is told to connect anew, so
    that new replicas get their share. Calls that are open then get `connection_age_grace`. None: for ever.
    reflection: whether the reflection service is served.
    reuse_port: whether other processes may listen on the same port; only under a supervisor.
    """

    tls_certificate: bytes = b""
    tls_key: bytes = b""
    api_keys: Mapping[str, Principal] = {}
    streams_per_principal: int = 10_000
    quick_deadline: float = 60.0
    waiting_deadline: float = 3600.0
    connection_age: float | None = None
    connection_age_grace: float = 60.0
    reflection: bool = True
    reuse_port: bool = False


def _options(settings: ServerSettings) -> list[tuple[str, Any]]:
    age = []
    if settings.connection_age is not None:
        age = [
            ("grpc.max_connection_age_ms", int(settings.connection_age * 1000)),
            ("grpc.max_connection_age_grace_ms", int(settings.connection_age_grace * 1000)),
        ]
    return [
        *age,
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        ("grpc.max_send_message_length", MAX_MESSAGE),
        # A taken port must be an error, not a second server that gets half of the calls.
        ("grpc.so_reuseport", 1 if settings.reuse_port else 0),
        # Clients may ping a quiet stream every 10 s; the server looks after dead peers itself.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        # Beyond what a principal may have open, so that more is refused and does not wait unseen.
        ("grpc.max_concurrent_streams", settings.streams_per_principal + 1000),
    ]


class Server:
    """Serves an engine. `port` is known after `start`."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self._engine = engine
        self._settings = settings
        self.port = 0
        self._closing: asyncio.Task[None] | None = None
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_options(settings))
        layers: tuple[Middleware, ...] = (
            RequestLog(),
            Errors(),
            Authentication(settings.api_keys),
            Limits(settings.streams_per_principal),
            Deadline(settings.quick_deadline, settings.waiting_deadline, WAITING, STREAMING),
        )
        if engine.telemetry.reads_callers:
            layers = (*layers, CallerSpan(engine.telemetry))
        servicers: dict[str, object] = {
            "AgentService": AgentService(engine),
            "RunService": RunService(engine),
            "InboxService": InboxService(engine),
            "ThreadService": ThreadService(engine),
            "WorkerService": WorkerService(engine),
            "CatalogService": CatalogService(engine),
        }
        for name, descriptor in SERVICES.items():
            register(self._server, descriptor, servicers[name], layers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            names = [descriptor.full_name for descriptor in SERVICES.values()]
            reflection.enable_server_reflection(
                (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
            )

    async def start(self, address: str) -> None:
        """Listen on `host:port`. Raises `RuntimeError` when the port is taken."""
        if self._settings.tls_certificate:
            credentials = grpc.ssl_server_credentials(
                [(self._settings.tls_key, self._settings.tls_certificate)]
            )
            self.port = self._server.add_secure_port(address, credentials)
        else:
            self.port = self._server.add_insecure_port(address)
        await self._server.start()
        for name in ("", *(descriptor.full_name for descriptor in SERVICES.values())):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Take no new work: health says NOT_SERVING, streams are told to re-attach, new runs are
        refused.

        Where others listen on the same port, this server leaves it to them first: connections are told
        to go away, so that clients which come again get to another process.
        """
        await self._health.enter_graceful_shutdown()
        if self._settings.reuse_port:
            self._closing = asyncio.create_task(self._server.stop(_NO_END), name="stop-listening")
            await asyncio.sleep(0)  # its first step closes the port
        self._engine.draining = True
        self._engine.hub.wake_all()

    async def stop(self, grace: float) -> None:
        """Stop listening; RPCs still open get `grace` seconds."""
        if self._closing is None:
            await self._server.stop(grace)
            return
        await asyncio.wait([self._closing], timeout=grace)
        if not self._closing.done():
            # A second, shorter grace time would have to wait for the first.
            self._closing.cancel()
            await asyncio.wait([self._closing])
            await self._server.stop(None)

    async def wait(self) -> None:
        """Until the server has stopped."""
        await self._server.wait_for_termination()
