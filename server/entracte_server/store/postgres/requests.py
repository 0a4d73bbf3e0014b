"""Request ids: what an earlier request made, found and recorded in the transaction of the change."""

from entracte_server.store.base import Made, RequestKey, RequestReused
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.programs import Attempt
from entracte_server.store.postgres.values import Values

_KEY = ("tenant", "principal", "method", "request_id")
_FIND = (
    "SELECT body_hash, run_id, decision_id FROM entracte.requests "
    "WHERE tenant = $1 AND principal = $2 AND method = $3 AND request_id = $4"
)


def find(key: RequestKey | None) -> list[Statement]:
    """The statement whose result `made_by` reads; none without a key."""
    return [] if key is None else [(_FIND, _key_values(key))]


def made_by(key: RequestKey | None, results: list[Result]) -> Made | None:
    """What an earlier request with this id made; takes the result of `find` from the front. Raises
    `RequestReused`."""
    if key is None:
        return None
    rows = results.pop(0).rows
    if not rows:
        return None
    body_hash, run_id, decision_id = rows[0]
    if body_hash != key.body_hash:
        raise RequestReused(key.request_id)
    return Made(run_id, decision_id)


def unused(key: RequestKey, value: Values) -> str:
    """The condition that the request id was not used before."""
    terms = [f"{name} = {value(own)}" for name, own in zip(_KEY, _key_values(key), strict=True)]
    return f"NOT EXISTS (SELECT 1 FROM entracte.requests WHERE {' AND '.join(terms)})"


def record(
    key: RequestKey, run_id: str, at: Attempt, value: Values, *, decision_id: str = "", source: str = ""
) -> str:
    """The statement that remembers what the request made; if `source` has a row, where it is given."""
    values = value.row(*_key_values(key), key.body_hash, run_id, decision_id, at.now)
    return (
        "INSERT INTO entracte.requests (tenant, principal, method, request_id, body_hash, run_id, "
        f"decision_id, create_time) SELECT {values}" + (f" FROM {source}" if source else "")
    )


def _key_values(key: RequestKey) -> tuple[str, str, str, str]:
    return key.tenant, key.principal, key.method, key.request_id
