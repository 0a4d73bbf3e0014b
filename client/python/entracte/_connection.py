"""The one channel of a client, and how calls are made on it."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from entracte._errors import EntracteError
from entracte._retry import Backoff, Deadline
from entracte._status import error_of
from entracte._version import __version__
from entracte.v1 import (
    agent_service_pb2_grpc,
    catalog_service_pb2_grpc,
    inbox_service_pb2_grpc,
    run_service_pb2_grpc,
    thread_service_pb2_grpc,
    worker_service_pb2_grpc,
)

Request = TypeVar("Request")
Response = TypeVar("Response")

MESSAGE_LIMIT = 16 * 1024 * 1024
RUN_ID_KEY = "entracte-run-id"


CHANNEL_OPTIONS: Mapping[str, str | int] = {
    "grpc.primary_user_agent": f"entracte-python/{__version__}",
    "grpc.max_send_message_length": MESSAGE_LIMIT,
    "grpc.max_receive_message_length": MESSAGE_LIMIT,
    # Servers tolerate a ping every 10 s; a dead connection is noticed within 30 s.
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.http2.max_pings_without_data": 0,
    # A server that comes back is found within seconds.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 5_000,
    "grpc.max_reconnect_backoff_ms": 5_000,
}


def tls_credentials(ca_certificates: bytes | str | Path | None) -> grpc.ChannelCredentials:
    """TLS with the given root certificates (PEM bytes, or the path of a file with them), or with
    those that gRPC ships."""
    if isinstance(ca_certificates, str | Path):
        ca_certificates = Path(ca_certificates).read_bytes()
    return grpc.ssl_channel_credentials(root_certificates=ca_certificates)


def being_cancelled() -> bool:
    """Whether a CancelledError was meant for the current task, rather than for its call."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Connection:
    """One channel with the stubs on it. Made on the running loop, when it is first used."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None,
        credentials: grpc.ChannelCredentials | None,
        options: Mapping[str, str | int],
        timeout: float | None,
        reattach_timeout: float,
        callbacks_in_threads: bool = False,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self.reattach_timeout = reattach_timeout
        self.callbacks_in_threads = callbacks_in_threads
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._credentials = credentials
        self._options = list({**CHANNEL_OPTIONS, **options}.items())
        self._channel: grpc.aio.Channel | None = None
        self._closed = False
        self._reached = False

    def open(self) -> None:
        """Make the channel, unless it is there. It connects when the first call is made."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._channel is not None:
            return
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self.address, options=self._options)
        else:
            self._channel = grpc.aio.secure_channel(self.address, self._credentials, options=self._options)
        self._agents = agent_service_pb2_grpc.AgentServiceStub(self._channel)
        self._runs = run_service_pb2_grpc.RunServiceStub(self._channel)
        self._inbox = inbox_service_pb2_grpc.InboxServiceStub(self._channel)
        self._threads = thread_service_pb2_grpc.ThreadServiceStub(self._channel)
        self._workers = worker_service_pb2_grpc.WorkerServiceStub(self._channel)
        self._catalog = catalog_service_pb2_grpc.CatalogServiceStub(self._channel)

    async def close(self) -> None:
        """Close the channel; calls in progress end."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    @property
    def agents(self) -> "agent_service_pb2_grpc.AgentServiceAsyncStub":
        """The stub of AgentService."""
        self.open()
        return self._agents

    @property
    def runs(self) -> "run_service_pb2_grpc.RunServiceAsyncStub":
        """The stub of RunService."""
        self.open()
        return self._runs

    @property
    def inbox(self) -> "inbox_service_pb2_grpc.InboxServiceAsyncStub":
        """The stub of InboxService."""
        self.open()
        return self._inbox

    @property
    def threads(self) -> "thread_service_pb2_grpc.ThreadServiceAsyncStub":
        """The stub of ThreadService."""
        self.open()
        return self._threads

    @property
    def workers(self) -> "worker_service_pb2_grpc.WorkerServiceAsyncStub":
        """The stub of WorkerService."""
        self.open()
        return self._workers

    @property
    def catalog(self) -> "catalog_service_pb2_grpc.CatalogServiceAsyncStub":
        """The stub of CatalogService."""
        self.open()
        return self._catalog

    def backoff(self, deadline: Deadline) -> Backoff:
        """The pauses of one call with all its repetitions."""
        return Backoff(self.reattach_timeout, deadline, reached=self._reached)

    def answered(self) -> None:
        """The server said something. From now on a call that finds it gone waits for it to come back."""
        self._reached = True

    def metadata(self, more: Sequence[tuple[str, str]] = ()) -> tuple[tuple[str, str], ...]:
        """What is sent beside every request."""
        return (*self._metadata, *more)

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        within: float | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Response:
        """Make a unary call; `within` seconds bound it with all its repetitions.

        Unary calls only read or carry a request id, so that the same request may be sent again. It is
        while the server is away, or says that it is, as long as `Backoff` allows: a server that never
        answered is given up quickly, one that did gets the time that a restart takes.
        """
        deadline = Deadline(within)
        backoff = self.backoff(deadline)
        while True:
            backoff.begin()
            call: Any = method(request, timeout=deadline.remaining(), metadata=self.metadata(metadata))
            try:
                response: Response = await call
                self.answered()
                return response
            except grpc.aio.AioRpcError as failure:
                error = error_of(failure)
                error.__cause__ = failure
                taken = any(key == RUN_ID_KEY for key, _ in failure.initial_metadata() or ())
            except asyncio.CancelledError:
                if being_cancelled():
                    raise
                error, taken = EntracteError("the call was cut off", code="CANCELLED"), False
            if taken or error.reason:  # the transport's own statuses have none
                self.answered()
            if taken:
                backoff.answered()
            if self._closed or not backoff.may_try_again(error):
                raise error
            await backoff.pause(error)
