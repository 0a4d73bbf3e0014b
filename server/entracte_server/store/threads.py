"""The part of a store that keeps threads: their rows, their messages, and which run has one.

A thread is had by one run at a time, from its creation to its end, suspensions included. Others that
want it wait in the order they came, as runs in the state `queued`; when the run that has it ends, is
deleted or times out, the next is `running` in the same transaction, without an owner, and found by
`Store.orphans` as a run is whose process died.

The runs of a run's sub-agents have threads of their own, which go with the one that the root has: they are
made and written to while it has that, and deleted with it; no other run can have them.
"""

from typing import Protocol

from entracte_server.domain.data import Data
from entracte_server.domain.runs import RunRow
from entracte_server.domain.threads import Author, ThreadMessage, ThreadRow, ThreadView
from entracte_server.store.requests import Made, RequestKey


class ThreadClaim(Data, frozen=True):
    """What a new run wants of its thread `run.thread_id`, which is to be of `run.resource_id`.

    A thread that does not exist is made, with `title` and `metadata`. With `reads_only` none is made, none
    is had and none waited for. Where another run has it, a run is refused unless it may `queue`, while
    fewer than `room` wait, until `deadline` (milliseconds since the epoch; 0: for ever). Where the
    run that has it is parked, `queue_parked` says so instead; or, with `replace`, that run is asked to
    cancel, with the reason `replace`, in the same transaction, and this one is queued: behind those that
    wait, or whatever `room` is when there are none.
    """

    title: str = ""
    metadata: str | None = None
    reads_only: bool = False
    queue: bool = False
    queue_parked: bool = False
    room: int = 0
    deadline: int = 0
    replace: str | None = None

    def may_wait(self, *, parked: bool, waiting: int) -> bool:
        """Whether the run may wait, beside `waiting` others, for one that has the thread."""
        if parked and self.replace is not None:
            return waiting == 0 or waiting < self.room
        return (self.queue_parked if parked else self.queue) and waiting < self.room


class CreateThread(Data, frozen=True):
    """Make a thread."""

    thread: ThreadRow
    request: RequestKey | None = None


class UpdateThread(Data, frozen=True):
    """Change a thread: None leaves a value as it is. `metadata` is the JSON text of an object; empty removes
    it. A thread stays as it is if it has a title, with `if_untitled`; and if the run `if_run` said
    nothing on it, where that is given: another thread may have its id by now."""

    tenant: str
    thread_id: str
    now: int
    title: str | None = None
    metadata: str | None = None
    if_untitled: bool = False
    if_run: str = ""
    request: RequestKey | None = None


class DeleteThread(Data, frozen=True):
    """Delete a thread and all that was said on it. With `force` also while runs have it or wait for it:
    these are asked to cancel, with `reason`."""

    tenant: str
    thread_id: str
    now: int
    force: bool = False
    reason: str = ""
    request: RequestKey | None = None


class DeletedThread(Data, frozen=True):
    """`cancelled` are the runs that were asked to cancel; those that nobody owned are running, without an
    owner. `made` is set when an earlier request with the same id had deleted the thread."""

    cancelled: tuple[str, ...] = ()
    made: Made | None = None


class MessageRange(Data, frozen=True):
    """Which messages of a thread: those after the position `after` and before `before` (0: to the end), of
    these `roles`, of this run and with these `ids` (empty: all). `newest` takes them from the end; they come
    in the order of the thread in any case. A thread of another resource than `resource_id` is none, where
    that is given."""

    after: int = 0
    before: int = 0
    newest: bool = False
    roles: tuple[Author, ...] = ()
    run_id: str = ""
    ids: tuple[str, ...] = ()
    resource_id: str = ""


class ThreadStore(Protocol):
    """See the module. All methods raise `StoreUnavailable` when the database does not answer."""

    async def create_thread(self, op: CreateThread) -> Made | None:
        """Raises `ThreadExists`, `RequestReused`."""
        ...

    async def get_thread(self, tenant: str, thread_id: str) -> ThreadView:
        """Raises `NotFound`."""
        ...

    async def list_threads(
        self, tenant: str, resource_id: str, *, cursor: str, limit: int
    ) -> tuple[list[ThreadView], str]:
        """The threads of a resource (empty: of all), newest first, and the cursor of the next page (empty:
        none)."""
        ...

    async def update_thread(self, op: UpdateThread) -> tuple[ThreadView, Made | None]:
        """Raises `NotFound`, `RequestReused`."""
        ...

    async def delete_thread(self, op: DeleteThread) -> DeletedThread:
        """From now on there is no such thread, and its id is free; what its runs still write to it is
        dropped. An empty working memory of its resource goes with the last of that one's threads. What the
        thread leaves behind, its messages and the runs that named it, is deleted by `sweep_threads`. Raises
        `NotFound`, `Refused` (not-finished, with the run that has it), `RequestReused`."""
        ...

    async def sweep_threads(self, *, limit: int) -> int:
        """Delete some of what deleted threads left behind, in one transaction that is short however much
        there is: of at most `limit` messages and runs that have ended, with all that belongs to these and
        with their sub-agents' runs. How many were touched: call it again while that is not 0."""
        ...

    async def read_messages(
        self, tenant: str, thread_id: str, where: MessageRange, *, limit: int
    ) -> list[ThreadMessage]:
        """Raises `NotFound`."""
        ...

    async def overdue(self, now: int, *, limit: int) -> list[RunRow]:
        """Queued runs of any tenant whose deadline is before `now`, the earliest first. Not those of a record
        format this code does not know."""
        ...
