"""Mutating requests that may be repeated."""

from entracte_server.domain.data import Data


class RequestKey(Data, frozen=True):
    """Identifies a mutating request of a principal; `body_hash` tells whether it is the same one.

    Kept in the transaction of the change, with the id of what was made, never a response.
    """

    tenant: str
    principal: str
    method: str
    request_id: str
    body_hash: bytes


class Made(Data, frozen=True):
    """What an earlier request with the same id made. `run_id` is the thread's id where it made, changed or
    deleted a thread, and the version's where it made or changed a version of an agent."""

    run_id: str
    decision_id: str = ""
