"""What a store keeps of workers: the tools they register, their sessions, and the work they have.

Work is made by the owner of a run, in the write that says that the call has started, and closed by it in
the write that has the outcome. In between anybody who serves the worker changes it: each change is one
statement whose condition is the state it comes from and, where a session has it, the token it was given
out with. Times that pass are measured by the store's clock.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from entracte_server.domain.data import Data
from entracte_server.domain.work import Answer, GivenWork, OfferedTool, Output, WorkSight, WorkState
from entracte_server.store.errors import StoreError

MAX_SESSIONS = 2_000
"""Sessions of one tenant."""

MAX_TOOL_VERSIONS = 2_000
"""Versions of tools of one tenant. When they are reached, those registered longest ago make room if no
session offers them."""

MAX_DELIVERIES = 20
"""How often work is given out before it counts as lost."""

MAX_OUTPUTS = 512
MAX_OUTPUT_BYTES = 8 * 1024 * 1024
"""What may wait of one tool's output to be written to its run."""

KEEP_CLOSED = 600_000
"""How long closed work is remembered, so that a repeated answer is recognised, in milliseconds."""


class SessionKey(Data, frozen=True):
    """A session, and which of its streams, which are counted."""

    tenant: str
    principal: str
    session_id: str
    stream: int


class ConnectWorker(Data, frozen=True):
    """A stream of a session begins, in `process_id`. The session lives for `grace` unless it is kept."""

    tenant: str
    principal: str
    session_id: str
    tools: tuple[OfferedTool, ...]
    grace: int


class Seat(Data, frozen=True):
    """Room that a session has for work: `free` in all, and of each target."""

    session: SessionKey
    free: int
    room: tuple[tuple[str, int], ...]


class Held(Data, frozen=True):
    """What a session has: work ids with their tokens; `stream` is its newest, 0 where it is gone."""

    session: SessionKey
    stream: int
    work: tuple[tuple[str, str], ...]


class Bearer(Data, frozen=True):
    """Who has work: the principal, and the token it was given out with."""

    tenant: str
    principal: str
    work_id: str
    token: str


class Handled(Data, frozen=True):
    """A change of work that a session has. `owner` is the process that owns the run, `written` whether there
    is output that the run may not have, `timeout` how long it may take from now on."""

    owner: str = ""
    replayed: bool = False
    written: bool = False
    timeout: int = 0


class Swept(Data, frozen=True):
    """Work whose state was changed because its time or its session's is over."""

    tenant: str
    work_id: str
    owner: str
    state: WorkState


WorkRefusalCause = Literal["unknown", "reassigned", "completed", "closed", "full"]


class WorkRefused(StoreError):
    """A bearer's change was refused: there is no such work of this principal (`unknown`), it was given out
    anew (`reassigned`), it has another outcome (`completed`), nobody wants it any more (`closed`), or too
    much of its output waits (`full`)."""

    def __init__(self, cause: WorkRefusalCause) -> None:
        super().__init__(cause)
        self.cause = cause


class WorkerToolConflict(StoreError):
    """Another definition is registered under this name and version."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f"{name} {version} is another tool")
        self.name = name
        self.version = version


class TooManyWorkers(StoreError):
    """The tenant has as many `sessions` or `tools` as it may."""

    def __init__(self, scope: Literal["sessions", "tools"], limit: int) -> None:
        super().__init__(f"more than {limit} {scope}")
        self.scope = scope
        self.limit = limit


class WorkStore(Protocol):
    """See the module. All methods raise `StoreUnavailable`."""

    async def connect_worker(self, op: ConnectWorker) -> int:
        """Register a session and its tools: the number of its stream, higher than any before. Raises
        `WorkerToolConflict`, `TooManyWorkers`."""
        ...

    async def keep_workers(self, sessions: Sequence[SessionKey], grace: int) -> None:
        """The sessions whose newest streams these are live for `grace` from now on."""
        ...

    async def worker_tools(self, tenant: str, name: str, version: str = "") -> OfferedTool | None:
        """The definition of a tool: of this version, else the one that a session registered last."""
        ...

    async def claim_work(self, seats: Sequence[Seat], *, limit: int) -> list[GivenWork]:
        """Give open work, the oldest first, to sessions of one tenant whose newest streams these are, evenly:
        at most `limit` and what they have room for."""
        ...

    async def held_work(self, sessions: Sequence[SessionKey]) -> list[Held]:
        """What sessions have."""
        ...

    async def given_work(self, tenant: str, principal: str, work_ids: Sequence[str]) -> list[GivenWork]:
        """Work that sessions of a principal have; what nobody has is left out."""
        ...

    async def answer_work(self, bearer: Bearer, answer: Answer, digest: bytes) -> Handled:
        """Store what work came to; `digest` tells this answer from others. Raises `WorkRefused`."""
        ...

    async def extend_work(self, bearer: Bearer, timeout: int, outputs: tuple[Output, ...]) -> Handled:
        """Let work take `timeout` from now on (0: its deadline stays), and store what its tool wrote, but
        for what it has by its number. Raises `WorkRefused`."""
        ...

    async def abandon_work(self, bearer: Bearer) -> Handled:
        """Give work back; it is open again. Raises `WorkRefused`."""
        ...

    async def see_work(self, keys: Sequence[tuple[str, str, int]]) -> list[WorkSight]:
        """How work stands: tenant, work id and the position up to which its output is known. What there is
        not is left out. About 1 MiB of output of each, so look again while there was any."""
        ...

    async def is_work_due(self) -> bool:
        """Whether `sweep_work` may have something to do."""
        ...

    async def sweep_work(self, *, limit: int) -> list[Swept]:
        """Change at most `limit` pieces of work whose time is over, or whose session is gone, and forget
        what was closed long ago.

        Given work that took too long expires. What a lost session had is open again if it is idempotent
        and was not given out too often, else it is lost. Open work that nobody offers to do, or that waited
        for too long, is unavailable."""
        ...
