"""How stores refuse."""

from typing import Literal

from entracte_server.domain.runs import DecisionRow, PendingRow, RunRow
from entracte_server.domain.working_memory import WorkingMemoryRow


class StoreError(Exception):
    """The root of what stores raise.

    StoreError
    ├── StoreUnavailable     the database does not answer or cannot write; most likely, but not surely,
    │                        nothing was changed
    ├── WrongDatabase        the database is none this code can use
    ├── LeaseLost            the run is owned by somebody else now; nothing was changed
    ├── NotFound             no such row for this tenant
    ├── RunExists            the run id is taken
    ├── ThreadExists         the thread id is taken
    ├── ThreadNotYours       the thread is another resource's
    ├── ThreadBelow          the thread is a sub-agent's, and goes with another
    ├── ThreadBusy           another run has the thread, and this one may not wait for it
    ├── MemoryChanged        the working memory has another version than the change is for
    ├── RequestReused        the request id was used with another body
    └── Refused              the condition of the change does not hold
    """


class StoreUnavailable(StoreError):
    """The database does not answer or cannot write (locked, full, I/O error)."""


class WrongDatabase(StoreError):
    """Not a database this code can use: newer than the code, or of another program."""


class LeaseLost(StoreError):
    """The writer does not own the run any more."""


class NotFound(StoreError):
    """No such row for this tenant."""


class RunExists(StoreError):
    """The run id is taken."""


class ThreadExists(StoreError):
    """The thread id is taken."""


class ThreadNotYours(StoreError):
    """The thread is another resource's."""


class ThreadBelow(StoreError):
    """The thread is a sub-agent's: only runs that have the thread it goes with write to it."""


class ThreadBusy(StoreError):
    """Another run has the thread, and this one may not wait for it: `holder` is its row, `pending` are its
    open calls, and `queued` says how many wait already."""

    def __init__(self, holder: RunRow, pending: tuple[PendingRow, ...], queued: int) -> None:
        super().__init__(f"run {holder.run_id} has the thread")
        self.holder = holder
        self.pending = pending
        self.queued = queued


class MemoryChanged(StoreError):
    """The working memory has another version than the change is for: it is `row`."""

    def __init__(self, row: WorkingMemoryRow) -> None:
        super().__init__(f"the working memory has version {row.version}")
        self.row = row


class PublishedChanged(StoreError):
    """Another version of the agent is published than the change is for: `published`, empty for none."""

    def __init__(self, published: str) -> None:
        super().__init__(f"the version {published!r} is published")
        self.published = published


class RequestReused(StoreError):
    """The request id was used with another body."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request id {request_id} was used with another body")
        self.request_id = request_id


RefusalCause = Literal["decided", "expired", "not-expired", "claimed", "finished", "not-finished"]


class Refused(StoreError):
    """A change whose condition does not hold. `pending`, `decision` and `run` show why."""

    def __init__(
        self,
        cause: RefusalCause,
        *,
        pending: PendingRow | None = None,
        decision: DecisionRow | None = None,
        run: RunRow | None = None,
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.pending = pending
        self.decision = decision
        self.run = run
