"""Work that clients do for runs: what a worker registers, what it is given, and what comes back.

Times are in milliseconds, JSON values are text.
"""

import hashlib
from typing import Literal

import msgspec

from entracte_server.domain.data import Data
from entracte_server.domain.options import PinnedTool, WorkerDefinition

WorkState = Literal["open", "given", "answered", "lost", "expired", "unavailable", "closed"]
"""`open`: to be given out. `given`: a session has it. `answered`, `lost` (with its session), `expired` (its
time is over) and `unavailable` (nobody took it) are what its run is to hear. `closed`: the run heard it, or
does not want it any more."""


class OfferedTool(Data, frozen=True):
    """A tool as a worker registers it. `name` is `toolset/name`; `target` tells its definition from all
    others; `concurrency` 0 is as many as the session may have."""

    name: str
    definition: WorkerDefinition
    description: str
    input_schema: str
    concurrency: int = 0

    @property
    def target(self) -> str:
        """See the class."""
        return self.definition.target

    def pinned(self) -> PinnedTool:
        """The tool as a run keeps it."""
        toolset, _, name = self.name.partition("/")
        return PinnedTool(
            toolset, run_name(self.name), name, self.description, self.input_schema, self.definition
        )


def run_name(name: str) -> str:
    """What `toolset/name` is called in a run."""
    return name.replace("/", "__", 1)


def offered(
    name: str,
    definition: WorkerDefinition,
    description: str,
    input_schema: str,
    concurrency: int = 0,
) -> OfferedTool:
    """A tool with its `target`, which covers its name and all of its definition."""
    bare = msgspec.structs.replace(definition, target="")
    digest = hashlib.sha256(msgspec.json.encode([name, bare, description, input_schema])).hexdigest()
    return OfferedTool(
        name, msgspec.structs.replace(bare, target=digest), description, input_schema, concurrency
    )


class ToolTask(Data, frozen=True):
    """A call of a tool, as its worker gets it."""

    name: str
    version: str
    run_id: str
    agent_id: str
    tool_call_id: str
    args: str
    idempotency_key: str
    thread_id: str = ""
    resource_id: str = ""
    request_context: str | None = None
    resumed: bool = False
    resume_data: str | None = None
    suspend_payload: str | None = None
    expired: bool = False
    state: str | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        texts = (self.args, self.request_context, self.resume_data, self.suspend_payload, self.state)
        return sum(len(text.encode()) for text in texts if text is not None)


class NewWork(Data, frozen=True):
    """Work to be given out: to a session that offers `target`. `timeout` is how long it may be executed,
    `wait` how long it waits for a session that offers it, `queue` for one that has room."""

    work_id: str
    call_id: str
    target: str
    task: ToolTask
    timeout: int
    wait: int
    queue: int
    idempotent: bool


class CloseWork(Data, frozen=True):
    """Work that its run has done with. `unwanted`: without having heard what it came to."""

    work_id: str
    unwanted: bool = False


class Answer(Data, frozen=True):
    """What work came to. `result`: `value` is JSON text. `error`: `value` is why. `suspended`: `value` is
    what is asked, `resume_schema` what the answer must look like, `state` what the tool keeps."""

    kind: Literal["result", "error", "suspended"]
    value: str | None
    resume_schema: str | None = None
    state: str | None = None


class Output(Data, frozen=True):
    """Something a tool wrote; `name` empty: as `tool-output`. `number` is the worker's; `position` is in
    which order it was stored."""

    number: int
    name: str
    value: str
    id: str = ""
    position: int = 0


class GivenWork(Data, frozen=True):
    """Work that a session has. `timeout` is what is left of its time, `delivery` how often it was
    given out."""

    principal: str
    session_id: str
    work_id: str
    token: str
    target: str
    timeout: int
    delivery: int
    task: ToolTask


class WorkSight(Data, frozen=True):
    """How work stands, and what its tool wrote since it was last looked at."""

    tenant: str
    work_id: str
    state: WorkState
    answer: Answer | None = None
    outputs: tuple[Output, ...] = ()


def work_id(
    run_id: str, path: tuple[str, ...], step: int, attempt: int, kind: str, call_id: str, number: int
) -> str:
    """The id of one piece of work, made of what it is for: the run, the delegations on the way to the agent,
    the step and its attempt, what is asked of which call, and the round of that. It begins with the run's."""
    digest = hashlib.sha256(msgspec.json.encode([path, step, attempt, kind, call_id, number])).hexdigest()
    return f"{run_id}/{digest[:32]}"


def run_of(work_id: str) -> str:
    """The run that work is for."""
    return work_id.rpartition("/")[0]
