"""The thread and the memory of a sub-agent's run.

Where a run has a thread, each of its sub-agents has one of its own beside it: what it was asked in this
conversation before, and what it answered. It goes with the thread that the root has, and belongs to a
resource of its own, so that what the two note down and recall stays apart.
"""

import hashlib

from entracte_server.agents.agent import Agent
from entracte_server.domain import json_text
from entracte_server.domain.memory import MemoryOptions, resource_below
from entracte_server.domain.runs import RunRow
from entracte_server.domain.threads import ThreadRow


def memory(above: MemoryOptions | None, key: str) -> MemoryOptions | None:
    """That of the run of the sub-agent `key` of a run with the memory `above`: how much it is told is for its
    agent to say, what may be written for the caller."""
    if above is None:
        return None
    return MemoryOptions(
        thread_id=thread_id(above.thread_id, key),
        resource_id=resource_below(above.resource_id, key),
        save_messages=above.save_messages,
        read_only=above.read_only,
        filter_incomplete=above.filter_incomplete,
        working_memory=None if above.working_memory is None or above.working_memory else False,
        generate_title=False,
    )


def thread_id(above: str, key: str) -> str:
    """The id of the thread of a sub-agent: always the same beside the thread `above`, and no name that
    somebody might choose."""
    return "sub-" + hashlib.blake2b(f"{len(above)}:{above}{key}".encode(), digest_size=16).hexdigest()


def thread(row: RunRow, agent: Agent, options: MemoryOptions | None, above: str) -> ThreadRow | None:
    """The thread of the run `row` of a sub-agent; None where none is to be made."""
    if options is None or options.read_only:
        return None
    return ThreadRow(
        tenant=row.tenant,
        thread_id=options.thread_id,
        resource_id=options.resource_id,
        create_time=row.create_time,
        update_time=row.create_time,
        title=agent.name,
        metadata=json_text.dump({"agent_id": agent.id, "parent_thread_id": above}),
    )
