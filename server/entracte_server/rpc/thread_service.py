"""ThreadService: keeps conversations."""

from entracte.v1 import thread_service_pb2 as pb
from entracte.v1 import working_memory_pb2 as pb_working
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.ids import new_id
from entracte_server.domain.threads import Author, ThreadRow, ThreadView
from entracte_server.engine.engine import Engine
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.threads import refusal_of_deletion
from entracte_server.rpc import checks, working_memory
from entracte_server.rpc.call import Context, current
from entracte_server.rpc.thread_pages import page_of_messages, page_of_threads
from entracte_server.rpc.threads import AUTHORS, thread_message
from entracte_server.store.base import NotFound, Refused, ThreadExists
from entracte_server.store.threads import CreateThread, DeleteThread, MessageRange, UpdateThread

DELETED = "Its thread was deleted."
"""Why the runs of a thread are cancelled that is deleted by force."""


class ThreadService:
    """See the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def CreateThread(
        self, request: pb.CreateThreadRequest, context: Context
    ) -> pb.CreateThreadResponse:
        """Make a thread."""
        tenant = self._changing()
        now = now_ms()
        thread = ThreadRow(
            tenant=tenant,
            thread_id=checks.thread_id("thread_id", request.thread_id, required=False) or new_id(),
            resource_id=checks.resource_id("resource_id", request.resource_id),
            create_time=now,
            update_time=now,
            title=checks.title("title", request.title),
            metadata=checks.metadata("metadata", request.metadata) if request.HasField("metadata") else None,
        )
        try:
            made = await self._engine.store.create_thread(CreateThread(thread, checks.request_key(request)))
        except ThreadExists:
            raise Refusal("THREAD_EXISTS", "The thread id is taken.", thread_id=thread.thread_id) from None
        view = ThreadView(thread) if made is None else await self._get(tenant, made.run_id)
        return pb.CreateThreadResponse(thread=thread_message(view), replayed=made is not None)

    async def GetThread(self, request: pb.GetThreadRequest, context: Context) -> pb.GetThreadResponse:
        """Read a thread."""
        thread_id = checks.identifier("thread_id", request.thread_id)
        view = await self._get(current.get().principal.tenant, thread_id)
        return pb.GetThreadResponse(thread=thread_message(view))

    async def _get(self, tenant: str, thread_id: str) -> ThreadView:
        try:
            return await self._engine.store.get_thread(tenant, thread_id)
        except NotFound:
            raise _not_found(thread_id) from None

    async def ListThreads(self, request: pb.ListThreadsRequest, context: Context) -> pb.ListThreadsResponse:
        """List threads, newest first."""
        resource_id = checks.identifier("resource_id", request.resource_id, required=False)
        size = checks.page_size(request.page_size)
        cursor = checks.page_cursor(request)
        tenant = current.get().principal.tenant
        try:
            found, following = await page_of_threads(self._engine.store, tenant, resource_id, cursor, size)
        except ValueError:
            raise checks.bad_page_token() from None
        return pb.ListThreadsResponse(threads=found, next_page_token=checks.page_token(request, following))

    async def UpdateThread(
        self, request: pb.UpdateThreadRequest, context: Context
    ) -> pb.UpdateThreadResponse:
        """Change the title or the metadata of a thread."""
        tenant = self._changing()
        thread_id = checks.identifier("thread_id", request.thread_id)
        if not (request.HasField("title") or request.HasField("metadata")):
            raise invalid("title", "is not given, nor is metadata: there is nothing to change")
        op = UpdateThread(
            tenant=tenant,
            thread_id=thread_id,
            now=now_ms(),
            title=checks.title("title", request.title) if request.HasField("title") else None,
            metadata=checks.metadata("metadata", request.metadata) if request.HasField("metadata") else None,
            request=checks.request_key(request),
        )
        try:
            view, made = await self._engine.store.update_thread(op)
        except NotFound:
            raise _not_found(thread_id) from None
        return pb.UpdateThreadResponse(thread=thread_message(view), replayed=made is not None)

    async def DeleteThread(
        self, request: pb.DeleteThreadRequest, context: Context
    ) -> pb.DeleteThreadResponse:
        """Delete a thread with all that was said on it."""
        tenant = self._changing()
        thread_id = checks.identifier("thread_id", request.thread_id)
        op = DeleteThread(
            tenant=tenant,
            thread_id=thread_id,
            now=now_ms(),
            force=request.force,
            reason=DELETED if request.force else "",
            request=checks.request_key(request),
        )
        try:
            deleted = await self._engine.delete_thread(op)
        except NotFound:
            raise _not_found(thread_id) from None
        except Refused as refused:
            raise await refusal_of_deletion(self._engine.store, op, refused) from None
        return pb.DeleteThreadResponse(replayed=deleted.made is not None, cancelled_run_ids=deleted.cancelled)

    async def ListThreadMessages(
        self, request: pb.ListThreadMessagesRequest, context: Context
    ) -> pb.ListThreadMessagesResponse:
        """List the messages of a thread."""
        thread_id = checks.identifier("thread_id", request.thread_id)
        where = MessageRange(
            newest=request.newest_first,
            roles=tuple(_author(f"roles[{i}]", role) for i, role in enumerate(request.roles)),
            run_id=checks.identifier("run_id", request.run_id, required=False),
        )
        size = checks.page_size(request.page_size)
        cursor = checks.page_cursor(request)
        try:
            found, following = await page_of_messages(
                self._engine.store, current.get().principal.tenant, thread_id, where, cursor, size
            )
        except NotFound:
            raise _not_found(thread_id) from None
        except ValueError:
            raise checks.bad_page_token() from None
        return pb.ListThreadMessagesResponse(
            messages=found, next_page_token=checks.page_token(request, following)
        )

    async def GetWorkingMemory(
        self, request: pb_working.GetWorkingMemoryRequest, context: Context
    ) -> pb_working.GetWorkingMemoryResponse:
        """Read what agents noted down."""
        return await working_memory.read(self._engine.store, current.get().principal.tenant, request)

    async def UpdateWorkingMemory(
        self, request: pb_working.UpdateWorkingMemoryRequest, context: Context
    ) -> pb_working.UpdateWorkingMemoryResponse:
        """Replace what agents noted down."""
        return await working_memory.replace(self._engine.store, self._changing(), request)

    def _changing(self) -> str:
        """The tenant of a caller who may change threads."""
        call = current.get()
        call.require("run")
        return call.principal.tenant


def _author(field: str, role: int) -> Author:
    author = AUTHORS.get(role)
    if author is None:
        raise invalid(
            field,
            "must be ROLE_USER, ROLE_ASSISTANT or ROLE_SYSTEM; what tools returned is part of the messages "
            "that called them",
        )
    return author


def _not_found(thread_id: str) -> Refusal:
    return Refusal("THREAD_NOT_FOUND", "There is no such thread.", thread_id=thread_id)
