"""Hints between the processes that work on one store.

A hint may be lost, late or doubled: whoever waits for something looks for himself once a second.
Processes tell each other which topics they watch, so that nothing is sent to those who do not care;
with one process, or nobody watching, telling costs a look into an empty set.
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str], None]
"""Called on the event loop with a topic. Must not block or raise."""


FREE_RUNS = "free"
"""That there are running runs without an owner."""


def run_topic(tenant: str, run_id: str) -> str:
    """That something of a run was committed."""
    return f"run\n{tenant}\n{run_id}"


def inbox_topic(tenant: str) -> str:
    """That pending calls of a tenant changed."""
    return f"inbox\n{tenant}"


def command_topic(tenant: str, run_id: str) -> str:
    """That the owner of a run has something to take up: a decision, a cancellation."""
    return f"command\n{tenant}\n{run_id}"


def followed_topic(tenant: str, run_id: str) -> str:
    """That a reader in another process follows a run."""
    return f"followed\n{tenant}\n{run_id}"


def work_topic(tenant: str, what: str) -> str:
    """That there may be work for the workers of a tenant (`open`), or that some is not wanted any more
    (`gone`)."""
    return f"work\n{tenant}\n{what}"


def seen_topic(tenant: str, work_id: str) -> str:
    """That the owner of a run may hear something of work."""
    return f"seen\n{tenant}\n{work_id}"


def read_topic(topic: str) -> tuple[str, str, str]:
    """Kind, tenant and run id of a topic, or what it has in its place; empty where it has none."""
    kind, _, rest = topic.partition("\n")
    if kind == "inbox":
        return kind, rest, ""
    tenant, _, run_id = rest.rpartition("\n")
    return kind, tenant, run_id


class Signals(Protocol):
    """What a store gives to its process. Nothing here blocks or raises."""

    def listen(self, listener: Listener) -> None:
        """Whom to call when another process tells something. One listener: the last one stands."""
        ...

    def watch(self, topic: str) -> None:
        """Other processes are to tell this one about `topic`. Counted: one `unwatch` for each."""
        ...

    def unwatch(self, topic: str) -> None:
        """See `watch`."""
        ...

    def tell(self, topic: str) -> None:
        """Tell the other processes that watch `topic`."""
        ...

    def send(self, process_id: str, topic: str) -> None:
        """Tell one process, whether it watches `topic` or not."""
        ...
