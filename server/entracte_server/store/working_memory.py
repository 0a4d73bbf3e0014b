"""The part of a store that keeps working memories: one of each resource, and one of each thread.

Two kinds of writers change one. A run writes with its own writes, in the transaction of the tool's result,
under the fence of the run: what its model was told had become of the memory is what became of it, and a
repeated write is recognised as one. Everybody else writes by the version that was read.
"""

from typing import Protocol

from entracte_server.domain.data import Data
from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.store.requests import Made, RequestKey


class Note(Data, frozen=True):
    """What a run writes: the whole memory, of the resource `resource_id`; where that is empty, of the thread
    that the run has, or of the sub-agent's thread `thread_id` that goes with it; where it has none any more,
    it is dropped. The version becomes the next, but `version` at least."""

    content: str
    version: int
    now: int
    resource_id: str = ""
    thread_id: str = ""


class SetWorkingMemory(Data, frozen=True):
    """Replace the memory of a thread or of a resource, on condition that its version is `expected` (0: there
    is none); None: whatever it is."""

    tenant: str
    content: str
    now: int
    thread_id: str = ""
    resource_id: str = ""
    expected: int | None = None
    request: RequestKey | None = None


class WorkingMemoryStore(Protocol):
    """See the module. All methods raise `StoreUnavailable` when the database does not answer.

    A memory is named by its thread or by its resource: one of the two is given, the other is empty.
    """

    async def get_working_memory(
        self, tenant: str, *, thread_id: str = "", resource_id: str = ""
    ) -> WorkingMemoryRow:
        """Version 0 where nothing was noted. Raises `NotFound` for a thread that does not exist."""
        ...

    async def set_working_memory(self, op: SetWorkingMemory) -> tuple[WorkingMemoryRow, Made | None]:
        """The memory as it is from now on. An empty one of a resource that has no threads is not kept. Raises
        `NotFound`, `MemoryChanged`, `RequestReused`."""
        ...
