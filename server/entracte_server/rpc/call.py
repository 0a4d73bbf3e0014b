"""What is known of an RPC while it is handled: who calls, what, under which request id."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc.aio

from entracte_server.domain.data import Data
from entracte_server.domain.errors import Refusal

ROLES = ("run", "decide", "worker", "author")
"""`run` may start, cancel and delete runs; `decide` may answer calls; `worker` may register tools and execute
calls of them; `author` may make and publish agents made of data, and run their drafts. Reading needs no
role."""


class Principal(Data, frozen=True):
    """Who a credential stands for."""

    tenant: str
    name: str
    roles: frozenset[str]


LOCAL = Principal("local", "local", frozenset(ROLES))
"""Everybody, on a server without credentials, which serves its own host only."""


class Call:
    """One RPC. `method` is without the service, `run_id` is for the log once it is known."""

    __slots__ = ("full_method", "method", "principal", "request_id", "run_id")

    def __init__(self, full_method: str, request_id: str) -> None:
        self.full_method = full_method
        self.method = full_method.rpartition("/")[2]
        self.request_id = request_id
        self.principal = LOCAL
        self.run_id = ""

    def require(self, role: str) -> None:
        """Raises `Refusal` ROLE_REQUIRED."""
        if role not in self.principal.roles:
            raise Refusal("ROLE_REQUIRED", f"This needs the role {role!r}.", role=role)


current: ContextVar[Call] = ContextVar("entracte_call")
"""The RPC this task handles."""

Context = grpc.aio.ServicerContext[Any, Any]
Behavior = Callable[[Any, Context], Awaitable[Any]]
