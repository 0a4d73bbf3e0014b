"""Programs: what an operation asks of the database, written without waiting.

A program is a generator. It yields the statements it needs next and gets their results; what it returns
is the operation's outcome, and what it raises its failure. Who runs it decides how its statements
travel, and with whose.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from entracte_server.store.postgres.connection import Result, Statement

T = TypeVar("T")

Program = Generator[list[Statement], list[Result], T]

Operation = Callable[["Attempt"], Program[T]]
"""Begins the program of an operation; once for each attempt.

The statements of its first round change nothing unless the operation succeeds with them: when it goes
on after that round it is begun again, in a transaction of its own, where it may take as many as it
likes. So most operations travel with others, in one trip, and those that are refused find out why
alone. A program locks the run it changes before it changes anything else, and no other.
"""


class Attempt(NamedTuple):
    """`now` is in milliseconds since the epoch. `token` is the same for all attempts of an operation and
    no other's. `again` says that an earlier attempt may have been committed."""

    now: int
    token: int
    again: bool


def start(program: Program[Any]) -> list[Statement]:
    """The statements of a program's first round."""
    return next(program)
