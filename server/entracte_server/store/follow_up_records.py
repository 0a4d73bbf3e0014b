"""Follow-up jobs to the columns of a table and back, as `records` does for the rest of a run."""

import msgspec

from entracte_server.domain.data import Data
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.results import Usage
from entracte_server.store.records import Row, encode


class FollowUpData(Data, frozen=True):
    """What a job's columns do not hold."""

    subject: str = ""
    ratio: float | None = None
    finish_time: int = 0
    score: float | None = None
    reason: str = ""
    error: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0
    title: str = ""


_decode = msgspec.msgpack.Decoder(FollowUpData).decode

FOLLOW_UP_COLUMNS = (
    "r.tenant, r.run_id, f.kind, f.name, f.handler, f.state, f.create_time, f.due_time, f.owner, "
    "f.attempts, f.data"
)
"""Of `follow_ups f` and its run `r`."""


def follow_up_data(row: FollowUpRow) -> bytes:
    return encode(
        FollowUpData(
            subject=row.subject,
            ratio=row.ratio,
            finish_time=row.finish_time,
            score=row.score,
            reason=row.reason,
            error=row.error,
            usage=row.usage,
            duration_ms=row.duration_ms,
            title=row.title,
        )
    )


def follow_up_row(row: Row) -> FollowUpRow:
    """From `FOLLOW_UP_COLUMNS`."""
    data = _decode(row[10])
    return FollowUpRow(
        tenant=row[0],
        run_id=row[1],
        kind=row[2],
        name=row[3],
        handler=row[4],
        state=row[5],
        create_time=row[6],
        due_time=row[7],
        owner=row[8],
        attempts=row[9],
        subject=data.subject,
        ratio=data.ratio,
        finish_time=data.finish_time,
        score=data.score,
        reason=data.reason,
        error=data.error,
        usage=data.usage,
        duration_ms=data.duration_ms,
        title=data.title,
    )
