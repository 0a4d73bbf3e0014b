"""The client for code without asyncio: the async one, driven on an event loop of its own.

Nothing is implemented twice: each method is the async method of the same name, waited for.
"""

import functools
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, Unpack

from entracte._agent import AgentClient
from entracte._agents import AgentsClient
from entracte._chunks import Chunk
from entracte._client import Client, ClientOptions
from entracte._fold import Fold
from entracte._inbox import InboxClient
from entracte._results import Decision, GenerateResult
from entracte._runs import RunsClient
from entracte._stream import RunStream
from entracte._sync_bridge import Face, LoopThread, blocking, iterating
from entracte._threads import ThreadsClient

P = ParamSpec("P")


class SyncRunStream:
    """The chunks of a run, for blocking code; see `RunStream`.

    Leaving the `for` loop, or the `with` block around it, stops following and leaves the run alone.
    """

    def __init__(self, loop: LoopThread, stream: RunStream) -> None:
        self._loop = loop
        self._stream = stream

    def __iter__(self) -> Generator[Chunk, None, None]:
        return self._loop.iterate(self._stream.__aiter__)

    @property
    def text_stream(self) -> Generator[str, None, None]:
        """The pieces of the answer's text as they come, in place of the chunks."""
        return self._loop.iterate(lambda: self._stream.text_stream)

    @property
    def run_id(self) -> str:
        """The run's id; see `RunStream.run_id`."""
        return self._stream.run_id

    @property
    def text(self) -> str:
        """The text so far, void attempts and drafts left out."""
        return self._stream.text

    @property
    def fold(self) -> Fold:
        """What the chunks so far add up to."""
        return self._stream.fold

    @property
    def decision(self) -> Decision | None:
        """The decision this stream began with, once it was made; None for other streams."""
        return self._stream.decision

    @property
    def position(self) -> int:
        """The sequence of the last chunk that was handed out."""
        return self._stream.position

    def commit(self) -> Decision:
        """Make the decision this stream begins with and return at once; see `RunStream.commit`."""
        return self._loop.run(self._stream.commit())

    def result(self) -> GenerateResult:
        """What the run has come to, after reading the stream to its end."""
        return self._loop.run(self._stream.result())

    def close(self) -> None:
        """Stop following. The run goes on, unless it has `cancel_on_disconnect`."""
        self._loop.run(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def streaming(
    method: Callable[Concatenate[Any, P], RunStream],
) -> Callable[Concatenate[Any, P], SyncRunStream]:
    """The blocking form of a method that returns a stream."""

    @functools.wraps(method)
    def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> SyncRunStream:
        return SyncRunStream(self._loop, method(self._inner, *args, **kwargs))

    return call


class SyncAgentClient(Face):
    """One agent of a server, for blocking code; see `AgentClient`."""

    _inner: AgentClient

    @property
    def id(self) -> str:
        """The agent's id."""
        return self._inner.id

    generate = blocking(AgentClient.generate)
    stream = streaming(AgentClient.stream)
    resume = blocking(AgentClient.resume)
    resume_stream = streaming(AgentClient.resume_stream)
    approve = blocking(AgentClient.approve)
    approve_stream = streaming(AgentClient.approve_stream)
    decline = blocking(AgentClient.decline)
    decline_stream = streaming(AgentClient.decline_stream)
    submit_tool_result = blocking(AgentClient.submit_tool_result)
    submit_tool_result_stream = streaming(AgentClient.submit_tool_result_stream)


class SyncRunsClient(Face):
    """The runs of a server, for blocking code; see `RunsClient`."""

    _inner: RunsClient

    get = blocking(RunsClient.get)
    list = iterating(RunsClient.list)
    list_page = blocking(RunsClient.list_page)
    watch = streaming(RunsClient.watch)
    follow_ups = blocking(RunsClient.follow_ups)
    cancel = blocking(RunsClient.cancel)
    delete = blocking(RunsClient.delete)


class SyncInboxClient(Face):
    """What waits for people, for blocking code; see `InboxClient`."""

    _inner: InboxClient

    list = iterating(InboxClient.list)
    list_page = blocking(InboxClient.list_page)
    get = blocking(InboxClient.get)
    watch = iterating(InboxClient.watch)
    claim = blocking(InboxClient.claim)
    release = blocking(InboxClient.release)
    decisions = iterating(InboxClient.decisions)
    decisions_page = blocking(InboxClient.decisions_page)


class SyncThreadsClient(Face):
    """The conversations of a server, for blocking code; see `ThreadsClient`."""

    _inner: ThreadsClient

    create = blocking(ThreadsClient.create)
    get = blocking(ThreadsClient.get)
    list = iterating(ThreadsClient.list)
    list_page = blocking(ThreadsClient.list_page)
    update = blocking(ThreadsClient.update)
    delete = blocking(ThreadsClient.delete)
    working_memory = blocking(ThreadsClient.working_memory)
    update_working_memory = blocking(ThreadsClient.update_working_memory)
    messages = iterating(ThreadsClient.messages)
    messages_page = blocking(ThreadsClient.messages_page)


class SyncAgentsClient(Face):
    """The agents of a server, for blocking code; see `AgentsClient`."""

    _inner: AgentsClient

    list = iterating(AgentsClient.list)
    list_page = blocking(AgentsClient.list_page)
    get = blocking(AgentsClient.get)
    create_version = blocking(AgentsClient.create_version)
    publish = blocking(AgentsClient.publish)
    archive = blocking(AgentsClient.archive)
    versions = iterating(AgentsClient.versions)
    versions_page = blocking(AgentsClient.versions_page)


class SyncClient:
    """A connection to an Entracte server, for blocking code; see `Client`.

        with SyncClient("localhost:50051") as client:
            for chunk in client.agent("support").stream("Hello"):
                ...

    It may be shared by threads. Callbacks and client tools that are plain functions are called on
    threads of their own, so that they may use the client. Close it with `close()` or `with`.
    """

    def __init__(self, address: str = "localhost:50051", **options: Unpack[ClientOptions]) -> None:
        self._client = Client(address, **options)
        self._client._connection.callbacks_in_threads = True
        self._loop = LoopThread()
        self.runs = SyncRunsClient(self._loop, self._client.runs)
        """Looking at runs, following them, ending them."""
        self.inbox = SyncInboxClient(self._loop, self._client.inbox)
        """What waits for people, and what people decided."""
        self.threads = SyncThreadsClient(self._loop, self._client.threads)
        """Conversations: making, reading, changing and deleting them."""
        self.agents = SyncAgentsClient(self._loop, self._client.agents)
        """Which agents there are, and the versions of those that are made of data."""

    def agent(self, agent_id: str) -> SyncAgentClient:
        """An agent by its id. Whether it exists shows when a run is started: AgentNotFound."""
        return SyncAgentClient(self._loop, self._client.agent(agent_id))

    def close(self) -> None:
        """Close the connection. Streams and waits that are open end with an error."""
        if not self._loop.closed:
            self._loop.run(self._client.aclose())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
