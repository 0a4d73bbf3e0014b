"""Threads and their messages to the columns of tables and back, as `records` does for runs."""

import msgspec

from entracte_server.domain.data import Data
from entracte_server.domain.threads import StoredPart, ThreadMessage, ThreadRow, ThreadRun, ThreadView
from entracte_server.store.records import Row, encode


class MessageData(Data, frozen=True):
    """What a message's columns do not hold."""

    parts: tuple[StoredPart, ...]
    author: str = ""
    step: int = 0
    metadata: str | None = None
    aborted: bool = False


_decode = msgspec.msgpack.Decoder(MessageData).decode

MESSAGE_COLUMNS = "m.position, m.message_id, m.role, m.run_id, m.create_time, m.format, m.data"
"""Of `messages m`."""

THREAD_COLUMNS = (
    "{0}.seq, {0}.tenant, {0}.thread_id, {0}.resource_id, {0}.title, {0}.metadata, {0}.create_time, "
    "{0}.update_time, m.position, m.create_time, r.run_id, r.state, "
    "(SELECT count(*) FROM {1}thread_turns c WHERE c.thread = coalesce({0}.parent, {0}.seq))"
)
"""Of a thread `{0}`, its newest message `m` and the run `r` that has it, or the thread that it goes with;
`{1}` is the tables' schema."""


def thread_view(row: Row) -> ThreadView:
    """From `THREAD_COLUMNS`."""
    _, tenant, thread_id, resource_id, title, metadata, create_time, update_time, *state = row
    last, said, run_id, run_state, turns = state
    thread = ThreadRow(
        tenant=tenant,
        thread_id=thread_id,
        resource_id=resource_id,
        create_time=create_time,
        update_time=max(update_time, said or 0),
        title=title,
        metadata=metadata,
        last_position=last or 0,
    )
    if run_id is None:
        return ThreadView(thread)
    return ThreadView(thread, ThreadRun(run_id, run_state), turns - 1)


def message_data(message: ThreadMessage) -> bytes:
    return encode(
        MessageData(
            parts=message.parts,
            author=message.author,
            step=message.step,
            metadata=message.metadata,
            aborted=message.aborted,
        )
    )


def message_row(row: Row) -> ThreadMessage:
    """From `MESSAGE_COLUMNS`."""
    position, message_id, role, run_id, create_time, form, data = row
    rest = _decode(data)
    return ThreadMessage(
        id=message_id,
        role=role,
        parts=rest.parts,
        create_time=create_time,
        author=rest.author,
        run_id=run_id,
        step=rest.step,
        metadata=rest.metadata,
        aborted=rest.aborted,
        position=position,
        format=form,
    )
