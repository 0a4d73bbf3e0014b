"""What happens after the end of a run: a job for each thing that is still to be done about it."""

from typing import Literal

from entracte_server.domain.data import Data
from entracte_server.domain.results import Usage

FollowUpKind = Literal["score", "title"]
FollowUpState = Literal["waiting", "succeeded", "failed", "skipped"]


class FollowUpRow(Data, frozen=True):
    """A job and what came of it. A run has one of each `kind` and `name`.

    `skipped` is one that was decided against: a score when the run ended, by `ratio`, the share of runs it
    is done for (None: all); a title when the thread was found to have one. `handler` says what a process
    must have to do it. While it waits it may be done from `due_time` on; while `owner` does it, that is when
    the owner's time is over. `attempts` counts those that were begun, and fences: what comes of an older one
    is dropped. Times are in milliseconds since the epoch.

    A `score` is that of the scorer `subject`; a `title` is what the thread was given. `error` says why there
    is none, or why the last attempt failed.
    """

    tenant: str
    run_id: str
    kind: FollowUpKind
    name: str
    handler: str
    state: FollowUpState
    create_time: int
    due_time: int = 0
    owner: str = ""
    attempts: int = 0
    subject: str = ""
    ratio: float | None = None
    finish_time: int = 0
    score: float | None = None
    reason: str = ""
    error: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0
    title: str = ""
