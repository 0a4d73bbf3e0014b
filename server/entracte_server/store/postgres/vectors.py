"""Vectors of messages: see `VectorStore`."""

from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.lists import MAX_ROW
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.values import Values
from entracte_server.store.thread_records import MESSAGE_COLUMNS, message_row
from entracte_server.store.vectors import AddVectors, Reach, StoredVector, Unembedded

_UNEMBEDDED = (
    "SELECT t.seq, t.thread_id, m.* FROM entracte.threads t CROSS JOIN LATERAL ("
    f"SELECT {MESSAGE_COLUMNS} FROM entracte.messages m WHERE m.thread = t.seq AND m.position > greatest("
    "coalesce((SELECT v.position FROM entracte.vectors v WHERE v.thread = t.seq AND v.embedder = {embedder} "
    "ORDER BY v.position DESC LIMIT 1), 0), "
    "(SELECT n.position FROM entracte.messages n WHERE n.thread = t.seq "
    "ORDER BY n.position DESC LIMIT 1) - {newest}) "
    "ORDER BY m.position LIMIT {limit}) m "
    "WHERE {within} ORDER BY t.seq DESC, m.position LIMIT {limit}"
)
_READ = (
    "SELECT t.seq, t.thread_id, v.position, v.data FROM entracte.threads t CROSS JOIN LATERAL ("
    "SELECT v.position, v.data FROM entracte.vectors v WHERE v.thread = t.seq AND v.embedder = {embedder} "
    f"AND v.position < CASE WHEN t.seq = {{thread}} THEN {{position}} ELSE {MAX_ROW} END "
    "ORDER BY v.position DESC LIMIT {limit}) v "
    "WHERE {within} AND t.seq <= {thread} ORDER BY t.seq DESC, v.position DESC LIMIT {limit}"
)
# The threads are locked so that none of them is deleted, and swept, meanwhile.
_ADD = (
    "WITH living AS MATERIALIZED (SELECT t.seq FROM entracte.threads t "
    "WHERE t.tenant = $1 AND t.seq = ANY($3::bigint[]) AND t.deleted = 0 ORDER BY t.seq FOR SHARE) "
    "INSERT INTO entracte.vectors (thread, embedder, position, data) "
    "SELECT l.seq, $2, n.position, n.data FROM living l "
    "JOIN unnest($4::bigint[], $5::bigint[], $6::bytea[]) AS n (thread, position, data) "
    "ON n.thread = l.seq ON CONFLICT (thread, embedder, position) DO NOTHING"
)
_DELETE = (
    # Of one embedder after the other: there are few of them, and many vectors of each.
    "WITH RECURSIVE e(name) AS (SELECT (SELECT v.embedder FROM entracte.vectors v WHERE v.thread = $1 "
    "ORDER BY v.embedder LIMIT 1) UNION ALL "
    "SELECT (SELECT v.embedder FROM entracte.vectors v WHERE v.thread = $1 AND v.embedder > e.name "
    "ORDER BY v.embedder LIMIT 1) FROM e WHERE e.name IS NOT NULL) "
    "DELETE FROM entracte.vectors d WHERE d.thread = $1 AND d.position <= $2 "
    "AND d.embedder = ANY(ARRAY(SELECT name FROM e WHERE name IS NOT NULL))"
)


def unembedded(where: Reach, newest: int, limit: int) -> Program[list[Unembedded]]:
    """See `VectorStore.unembedded`."""
    value = Values()
    sql = _UNEMBEDDED.format(
        embedder=value(where.embedder),
        newest=value(newest),
        limit=value(limit),
        within=_within(where, value),
    )
    (found,) = yield [(sql, value.bound)]
    return [Unembedded(seq, thread_id, message_row(tuple(rest))) for seq, thread_id, *rest in found.rows]


def add(op: AddVectors) -> Program[None]:
    """See `VectorStore.add_vectors`. In a transaction of its own."""
    threads = [thread for thread, _, _ in op.rows]
    positions = [position for _, position, _ in op.rows]
    data = [data for _, _, data in op.rows]
    yield [(_ADD, (op.tenant, op.embedder, sorted(set(threads)), threads, positions, data))]


def read(where: Reach, after: StoredVector | None, limit: int) -> Program[list[StoredVector]]:
    """See `VectorStore.read_vectors`."""
    value = Values()
    thread, position = (MAX_ROW, MAX_ROW) if after is None else (after.thread, after.position)
    sql = _READ.format(
        embedder=value(where.embedder),
        thread=value(thread),
        position=value(position),
        limit=value(limit),
        within=_within(where, value),
    )
    (found,) = yield [(sql, value.bound)]
    return [StoredVector(*row) for row in found.rows]


def delete(thread: int, last: int) -> list[Statement]:
    """Delete those of the messages of a thread up to the position `last`."""
    return [(_DELETE, (thread, last))]


def _within(where: Reach, value: Values) -> str:
    tenant = value(where.tenant)
    terms = f"t.tenant = {tenant} AND t.resource_id = {value(where.resource_id)} AND t.deleted = 0"
    if not where.thread_id:
        return terms
    return (  # by its row id, so that the other threads of the resource are not looked at
        f"{terms} AND t.seq = (SELECT s.seq FROM entracte.threads s "
        f"WHERE s.tenant = {tenant} AND s.thread_id = {value(where.thread_id)} AND s.deleted = 0)"
    )
