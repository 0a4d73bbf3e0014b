"""The options `memory` and `save_per_step`."""

from typing import Literal

from entracte.v1 import options_pb2
from entracte_server.agents.agent import Agent
from entracte_server.domain.errors import invalid
from entracte_server.domain.memory import (
    MAX_MESSAGE_RANGE,
    MAX_TOP_K,
    MemoryOptions,
    RecallOptions,
    RecallScope,
)
from entracte_server.rpc import checks

MAX_MESSAGES = 10_000
"""Earlier messages that a run may ask for."""

MAX_QUEUE_TIMEOUT = 366 * 86400

_FIELD = "options.memory"

_ON_BUSY: dict[int, Literal["refuse", "queue"]] = {
    options_pb2.ON_BUSY_THREAD_UNSPECIFIED: "refuse",
    options_pb2.ON_BUSY_THREAD_REFUSE: "refuse",
    options_pb2.ON_BUSY_THREAD_QUEUE: "queue",
}
_ON_PARKED: dict[int, Literal["refuse", "cancel", "queue"]] = {
    options_pb2.ON_PARKED_THREAD_UNSPECIFIED: "refuse",
    options_pb2.ON_PARKED_THREAD_REFUSE: "refuse",
    options_pb2.ON_PARKED_THREAD_CANCEL: "cancel",
    options_pb2.ON_PARKED_THREAD_QUEUE: "queue",
}

_SCOPES: dict[int, RecallScope | None] = {
    options_pb2.SemanticRecall.SCOPE_UNSPECIFIED: None,
    options_pb2.SemanticRecall.SCOPE_THREAD: "thread",
    options_pb2.SemanticRecall.SCOPE_RESOURCE: "resource",
}


def memory_from(agent: Agent, options: options_pb2.GenerateOptions) -> MemoryOptions | None:
    """The thread of a run of `agent`; None where it has none. Raises `Refusal`."""
    if not options.HasField("memory"):
        return None
    given = options.memory
    on_busy, on_parked = _waiting(given)
    _check_read_only(given, on_busy, on_parked)
    thread_id, resource_id = _thread(given)
    return MemoryOptions(
        thread_id=thread_id,
        resource_id=resource_id,
        title=checks.title(f"{_FIELD}.thread.title", given.thread.title),
        metadata=(
            checks.metadata(f"{_FIELD}.thread.metadata", given.thread.metadata)
            if given.thread.HasField("metadata")
            else None
        ),
        last_messages=_count(given),
        max_history_tokens=_tokens(given),
        save_messages=given.save_messages if given.HasField("save_messages") else True,
        read_only=given.read_only,
        filter_incomplete=(
            given.filter_incomplete_tool_calls if given.HasField("filter_incomplete_tool_calls") else True
        ),
        on_busy=on_busy,
        on_parked=on_parked,
        queue_timeout=_queue_timeout(given),
        semantic_recall=_recall(given),
        working_memory=_working_memory(agent, given),
        generate_title=_generate_title(given),
    )


def thread_of(options: options_pb2.GenerateOptions) -> MemoryOptions | None:
    """Only the thread of a run, of whatever agent; None where it has none. Raises `Refusal`."""
    return MemoryOptions(*_thread(options.memory)) if options.HasField("memory") else None


def save_per_step(options: options_pb2.GenerateOptions) -> bool:
    """Whether what is said is added to the thread after each step. Raises `Refusal`."""
    if options.save_per_step and not options.HasField("memory"):
        raise invalid("options.save_per_step", "goes with options.memory: without a thread nothing is saved")
    return options.save_per_step


def _thread(given: options_pb2.MemoryOptions) -> tuple[str, str]:
    """The thread's id and whose it is: one does not go without the other."""
    if given.thread.id and not given.resource:
        raise invalid(f"{_FIELD}.resource", "is required with a thread: say whose memory it is")
    if not given.thread.id:
        raise invalid(f"{_FIELD}.thread.id", "is required; a run without a thread has no memory")
    whose = checks.identifier if given.read_only else checks.resource_id
    return (
        checks.thread_id(f"{_FIELD}.thread.id", given.thread.id),
        whose(f"{_FIELD}.resource", given.resource),
    )


def _waiting(
    given: options_pb2.MemoryOptions,
) -> tuple[Literal["refuse", "queue"], Literal["refuse", "cancel", "queue"]]:
    on_busy = _ON_BUSY.get(given.on_busy_thread)
    on_parked = _ON_PARKED.get(given.on_parked_thread)
    if on_busy is None:
        raise invalid(f"{_FIELD}.on_busy_thread", "is not a value this server knows")
    if on_parked is None:
        raise invalid(f"{_FIELD}.on_parked_thread", "is not a value this server knows")
    return on_busy, on_parked


def _check_read_only(given: options_pb2.MemoryOptions, on_busy: str, on_parked: str) -> None:
    """A run that only reads neither has its thread nor waits for it."""
    if not given.read_only:
        return
    why = "does not go with read_only: a run that only reads does not wait for its thread"
    if on_busy != "refuse":
        raise invalid(f"{_FIELD}.on_busy_thread", why)
    if on_parked != "refuse":
        raise invalid(f"{_FIELD}.on_parked_thread", why)
    if given.HasField("queue_timeout"):
        raise invalid(f"{_FIELD}.queue_timeout", why)
    if given.save_messages:
        raise invalid(f"{_FIELD}.save_messages", "does not go with read_only, which writes nothing")


def _working_memory(agent: Agent, given: options_pb2.MemoryOptions) -> bool | None:
    if not given.HasField("working_memory"):
        return None
    if given.working_memory and (agent.memory is None or agent.memory.working_memory is None):
        raise invalid(
            f"{_FIELD}.working_memory",
            f"the agent {agent.id!r} is made without one: give it Memory(working_memory=...)",
        )
    return given.working_memory


def _generate_title(given: options_pb2.MemoryOptions) -> bool | None:
    if not given.HasField("generate_title"):
        return None
    unsaved = given.read_only or (given.HasField("save_messages") and not given.save_messages)
    if given.generate_title and unsaved:
        raise invalid(
            f"{_FIELD}.generate_title",
            "does not go with read_only, nor without save_messages: the run leaves nothing on the thread",
        )
    return given.generate_title


def _count(given: options_pb2.MemoryOptions) -> int | None:
    if not given.HasField("last_messages"):
        return None
    if not 0 <= given.last_messages <= MAX_MESSAGES:
        raise invalid(f"{_FIELD}.last_messages", f"must be from 0 (none) to {MAX_MESSAGES}")
    return given.last_messages


def _tokens(given: options_pb2.MemoryOptions) -> int | None:
    if not given.HasField("max_history_tokens"):
        return None
    if given.max_history_tokens < 1:
        raise invalid(
            f"{_FIELD}.max_history_tokens", "must be at least 1; last_messages = 0 shows no earlier messages"
        )
    return given.max_history_tokens


def _recall(given: options_pb2.MemoryOptions) -> RecallOptions | None:
    if not given.HasField("semantic_recall"):
        return None
    recall, field = given.semantic_recall, f"{_FIELD}.semantic_recall"
    if not 0 <= recall.top_k <= MAX_TOP_K:
        raise invalid(f"{field}.top_k", f"must be from 0 (none) to {MAX_TOP_K}")
    if not 0 <= recall.message_range <= MAX_MESSAGE_RANGE:
        raise invalid(f"{field}.message_range", f"must be from 0 to {MAX_MESSAGE_RANGE}")
    if recall.scope not in _SCOPES:
        raise invalid(f"{field}.scope", "is not a value this server knows")
    return RecallOptions(
        top_k=recall.top_k if recall.HasField("top_k") else None,
        message_range=recall.message_range if recall.HasField("message_range") else None,
        scope=_SCOPES[recall.scope],
    )


def _queue_timeout(given: options_pb2.MemoryOptions) -> float | None:
    if not given.HasField("queue_timeout"):
        return None
    return checks.duration(f"{_FIELD}.queue_timeout", given.queue_timeout, 0.001, MAX_QUEUE_TIMEOUT)
