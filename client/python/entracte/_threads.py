"""Threads: making, reading, changing and deleting conversations."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Unpack

from entracte._connection import Connection
from entracte._enums import ROLES, Role, number_of
from entracte._ids import new_id
from entracte._json import to_json
from entracte._options import CallOptions
from entracte._options_codec import check_names
from entracte._paging import all_items
from entracte._results import Page
from entracte._thread_codec import thread_message_of, thread_of, working_memory_of
from entracte._thread_records import ThreadInfo, ThreadMessage
from entracte._working_memory import WorkingMemory
from entracte.v1 import thread_service_pb2 as pb
from entracte.v1 import working_memory_pb2


class ThreadFilter(CallOptions, total=False):
    """Which threads are listed; what is absent does not filter."""

    resource_id: str
    """Only threads of this resource."""
    page_size: int
    """How many threads one request asks for, 1 to 1000. Default 50."""


class ThreadMessageFilter(CallOptions, total=False):
    """Which messages of a thread are listed, and how."""

    roles: Sequence[Role]
    """Only messages of these roles: `user`, `assistant`, `system`."""
    run_id: str
    """Only messages of this run."""
    newest_first: bool
    """Whether the newest come first."""
    page_size: int
    """How many messages one request asks for, 1 to 1000. Default 50. A page has fewer where they are
    large."""


class ThreadsClient:
    """The conversations of a server: `client.threads`. All methods raise EntracteError.

    Runs make threads, too: `agent.generate("Hi", memory=Memory(thread="t1", resource="u1"))`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        resource_id: str,
        *,
        thread_id: str = "",
        title: str = "",
        metadata: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> ThreadInfo:
        """Makes a thread of a resource, for example a user's id. Its id is made by the server where none is
        given. Raises ThreadExists."""
        request = pb.CreateThreadRequest(
            thread_id=thread_id,
            resource_id=resource_id,
            title=title,
            metadata=None if metadata is None else to_json(metadata),
            request_id=request_id or new_id(),
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.threads.CreateThread, request, within=within)
        return thread_of(response.thread)

    async def get(self, thread_id: str, **call: Unpack[CallOptions]) -> ThreadInfo:
        """Reads a thread. Raises ThreadNotFound."""
        request = pb.GetThreadRequest(thread_id=thread_id)
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.threads.GetThread, request, within=within)
        return thread_of(response.thread)

    def list(self, **filters: Unpack[ThreadFilter]) -> AsyncGenerator[ThreadInfo, None]:
        """All threads that fit, newest first; asks for page after page."""

        async def page_after(token: str) -> Page[ThreadInfo]:
            return await self.list_page(token, **filters)

        return all_items(page_after)

    async def list_page(self, page_token: str = "", **filters: Unpack[ThreadFilter]) -> Page[ThreadInfo]:
        """One page of `list`: the first, or the one that a `next_page_token` names.

        Raises PageTokenInvalid for a token of another list or of other filters.
        """
        check_names(filters, ThreadFilter.__annotations__, "list")
        request = pb.ListThreadsRequest(
            page_size=filters.get("page_size", 0),
            page_token=page_token,
            resource_id=filters.get("resource_id", ""),
        )
        within = filters.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.threads.ListThreads, request, within=within)
        return Page(tuple(map(thread_of, response.threads)), response.next_page_token)

    async def update(
        self,
        thread_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> ThreadInfo:
        """Changes the title (empty: takes it away), or replaces the metadata; None leaves it as it is.
        Raises ThreadNotFound."""
        request = pb.UpdateThreadRequest(
            thread_id=thread_id,
            title=title,
            metadata=None if metadata is None else to_json(metadata),
            request_id=request_id or new_id(),
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.threads.UpdateThread, request, within=within)
        return thread_of(response.thread)

    async def delete(
        self,
        thread_id: str,
        *,
        force: bool = False,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> tuple[str, ...]:
        """Deletes a thread with its messages and its runs. While a run has it or waits for it, only with
        `force`, which cancels these runs: their ids are returned.

        Raises ThreadNotFound, ThreadBusy and ThreadParked.
        """
        request = pb.DeleteThreadRequest(thread_id=thread_id, force=force, request_id=request_id or new_id())
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.threads.DeleteThread, request, within=within)
        return tuple(response.cancelled_run_ids)

    async def working_memory(
        self, *, thread_id: str = "", resource_id: str = "", **call: Unpack[CallOptions]
    ) -> WorkingMemory:
        """What agents noted down of a thread, or of a resource: give one of them. Raises ThreadNotFound."""
        request = working_memory_pb2.GetWorkingMemoryRequest(**_owner(thread_id, resource_id))
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.threads.GetWorkingMemory, request, within=within
        )
        return working_memory_of(response.working_memory)

    async def update_working_memory(
        self,
        content: str | Mapping[str, Any],
        *,
        thread_id: str = "",
        resource_id: str = "",
        expected_version: int | None = None,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> WorkingMemory:
        """Replaces what agents noted down of a thread, or of a resource: with markdown, with an object, or
        with nothing where it is empty. With `expected_version`, the version that was read (0: there was
        none), only if it has not changed since.

        Raises ThreadNotFound and WorkingMemoryChanged.
        """
        request = working_memory_pb2.UpdateWorkingMemoryRequest(
            **_owner(thread_id, resource_id),
            content=content if isinstance(content, str) else to_json(content).text,
            expected_version=expected_version,
            request_id=request_id or new_id(),
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.threads.UpdateWorkingMemory, request, within=within
        )
        return working_memory_of(response.working_memory)

    def messages(
        self, thread_id: str, **filters: Unpack[ThreadMessageFilter]
    ) -> AsyncGenerator[ThreadMessage, None]:
        """All messages of a thread that fit, in its order or from the newest on; asks for page after page.
        Raises ThreadNotFound from the iteration."""

        async def page_after(token: str) -> Page[ThreadMessage]:
            return await self.messages_page(thread_id, token, **filters)

        return all_items(page_after)

    async def messages_page(
        self, thread_id: str, page_token: str = "", **filters: Unpack[ThreadMessageFilter]
    ) -> Page[ThreadMessage]:
        """One page of `messages`. Raises ThreadNotFound and PageTokenInvalid."""
        check_names(filters, ThreadMessageFilter.__annotations__, "messages")
        request = pb.ListThreadMessagesRequest(
            thread_id=thread_id,
            page_size=filters.get("page_size", 0),
            page_token=page_token,
            roles=[number_of(ROLES, role, "a role") for role in filters.get("roles", ())],
            run_id=filters.get("run_id", ""),
            newest_first=filters.get("newest_first", False),
        )
        within = filters.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.threads.ListThreadMessages, request, within=within
        )
        return Page(tuple(map(thread_message_of, response.messages)), response.next_page_token)


def _owner(thread_id: str, resource_id: str) -> dict[str, Any]:
    """Whose working memory is meant, as it is given."""
    if thread_id and resource_id:
        raise ValueError("a working memory is that of a thread or of a resource: give one of the two")
    return {"thread_id": thread_id} if thread_id else {"resource_id": resource_id} if resource_id else {}
