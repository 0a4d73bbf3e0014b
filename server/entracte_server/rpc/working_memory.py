"""What agents noted down, read and replaced over RPC."""

from entracte.v1 import working_memory_pb2 as pb
from entracte_server.agents.working_memory import MAX_BYTES
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.engine.runlog import now_ms
from entracte_server.rpc import checks
from entracte_server.store.base import MemoryChanged, NotFound, Store
from entracte_server.store.working_memory import SetWorkingMemory
from entracte_server.wire import values


async def read(store: Store, tenant: str, request: pb.GetWorkingMemoryRequest) -> pb.GetWorkingMemoryResponse:
    """Answer `GetWorkingMemory`. Raises `Refusal`."""
    thread_id, resource_id = _owner(request)
    try:
        row = await store.get_working_memory(tenant, thread_id=thread_id, resource_id=resource_id)
    except NotFound:
        raise _no_thread(thread_id) from None
    return pb.GetWorkingMemoryResponse(working_memory=_message(row))


async def replace(
    store: Store, tenant: str, request: pb.UpdateWorkingMemoryRequest
) -> pb.UpdateWorkingMemoryResponse:
    """Answer `UpdateWorkingMemory`. Raises `Refusal`."""
    thread_id, resource_id = _owner(request)
    if (size := len(request.content.encode())) > MAX_BYTES:
        raise invalid("content", f"has {size} bytes; a working memory may have {MAX_BYTES}")
    op = SetWorkingMemory(
        tenant=tenant,
        content=request.content,
        now=now_ms(),
        thread_id=thread_id,
        resource_id=resource_id,
        expected=request.expected_version if request.HasField("expected_version") else None,
        request=checks.request_key(request),
    )
    try:
        row, made = await store.set_working_memory(op)
    except NotFound:
        raise _no_thread(thread_id) from None
    except MemoryChanged as error:
        raise Refusal(
            "WORKING_MEMORY_CHANGED",
            f"The working memory has the version {error.row.version}, not {op.expected}: read it again.",
            version=str(error.row.version),
        ) from None
    return pb.UpdateWorkingMemoryResponse(working_memory=_message(row), replayed=made is not None)


def _owner(request: pb.GetWorkingMemoryRequest | pb.UpdateWorkingMemoryRequest) -> tuple[str, str]:
    """The thread or the resource; the other is empty."""
    match request.WhichOneof("owner"):
        case "thread_id":
            return checks.identifier("thread_id", request.thread_id), ""
        case "resource_id":
            return "", checks.identifier("resource_id", request.resource_id)
        case _:
            raise invalid("thread_id", "is required, or resource_id: say whose working memory it is")


def _message(row: WorkingMemoryRow) -> pb.WorkingMemory:
    message = pb.WorkingMemory(content=row.content, version=row.version)
    if row.thread_id:
        message.thread_id = row.thread_id
    else:
        message.resource_id = row.resource_id
    if row.version:
        message.update_time.CopyFrom(values.timestamp(row.update_time))
    return message


def _no_thread(thread_id: str) -> Refusal:
    return Refusal("THREAD_NOT_FOUND", "There is no such thread.", thread_id=thread_id)
