"""What can go wrong below the store, and what is done about it.

DatabaseError      a statement was refused; `sqlstate` says why
ConnectionLost     the connection is gone; what was sent may have taken effect or not
└── NotConnected   it could not be made, so nothing was sent
"""

from entracte_server.store.base import StoreUnavailable


class DatabaseError(Exception):
    """The server refused a statement."""

    def __init__(self, sqlstate: str, message: str, constraint: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.constraint = constraint

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.sqlstate})"


class ConnectionLost(Exception):
    """The connection broke."""


class NotConnected(ConnectionLost):
    """The connection could not be made."""


_OTHER_SERVER = frozenset(
    {
        "25006",  # read-only: a standby, or a primary that is one no more
        "26000",  # a prepared statement that is not there: a pooler gave us another connection
        "42P05",  # one that is there already: the same
        "25P03",  # we were idle in a transaction for too long
        "57P01",  # terminated by an administrator
        "57P02",  # the server crashed
        "57P03",  # it starts or stops
        "57P04",  # the database was dropped
        "57P05",  # we were idle for too long
        "53300",  # too many connections
    }
)
_AGAIN = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "40003",  # completion unknown
        "55P03",  # a lock was not to be had in time
    }
)
_UNIQUE = "23505"
_REQUESTS = "requests_pkey"
_POOLED = frozenset({"26000", "42P05"})


def breaks_connection(error: Exception) -> bool:
    """Whether another connection is needed."""
    if isinstance(error, DatabaseError):
        return error.sqlstate in _OTHER_SERVER or error.sqlstate.startswith("08")
    return isinstance(error, ConnectionLost)


def leaves_doubt(error: Exception) -> bool:
    """Whether what was to be committed may have been."""
    return breaks_connection(error) and not isinstance(error, NotConnected)


def is_passing(error: Exception) -> bool:
    """Whether another attempt may succeed, without anything being different on our side."""
    if isinstance(error, DatabaseError) and (error.sqlstate in _AGAIN or _is_same_request(error)):
        return True
    return breaks_connection(error)


def _is_same_request(error: DatabaseError) -> bool:
    """Another request with the same id was committed at the same time: the next attempt finds it."""
    return error.sqlstate == _UNIQUE and error.constraint == _REQUESTS


def is_callers_fault(error: DatabaseError) -> bool:
    """Whether the values are to blame: out of range, or a unique id used twice."""
    return error.sqlstate.startswith(("22", "23")) and not _is_same_request(error)


def unavailable(error: Exception) -> StoreUnavailable:
    """What the callers are told."""
    says = "refuses" if isinstance(error, DatabaseError) else "does not answer"
    hint = ""
    if isinstance(error, DatabaseError) and error.sqlstate in _POOLED:
        hint = "; prepared statements get lost: if there is a pooler in between, set store_listen_url"
    failure = StoreUnavailable(f"the database {says}: {error}{hint}")
    failure.__cause__ = error
    return failure
