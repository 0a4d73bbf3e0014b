"""What a new run is created with."""

from entracte_server.agents.agent import Agent
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.errors import Refusal
from entracte_server.domain.ids import new_id
from entracte_server.domain.messages import Message
from entracte_server.domain.options import RunOptions
from entracte_server.domain.runs import RunRow, RunSpec
from entracte_server.engine.stored_agents import Tree
from entracte_server.store.base import ChunkRow, RequestKey
from entracte_server.wire.codec import ChunkEncoder


class Start(Data, frozen=True):
    """A request to start a run. `run_id` empty: made here. `tree`: its agent and those below it, where they
    are chosen already. `refusal`: why it cannot be started now; a repeated request is answered all the
    same."""

    tenant: str
    principal: str
    agent_id: str
    input: tuple[Message, ...]
    options: RunOptions
    run_id: str = ""
    request: RequestKey | None = None
    refusal: Refusal | None = None
    tree: Tree | None = None


class Started(Data, frozen=True):
    """The run that was started, or that an earlier request with the same id had started."""

    run: RunRow
    replayed: bool = False


class NewRun(Data, frozen=True):
    """A run with its first chunks. `announced`: these begin its first step."""

    run: RunRow
    spec: RunSpec
    chunks: ChunkRow
    announced: bool


def new_run(request: Start, agent: Agent, model: str, *, owner: str, now: int) -> NewRun:
    """The run that is asked for, whose agent asks `model` first."""
    options = request.options
    instructions = options.instructions
    if instructions is None:
        text = options.request_context
        instructions = agent.system_texts(json_text.parse(text) if text else {})
    run_id = request.run_id or new_id()
    message_id = new_id()
    chunks = ChunkEncoder(run_id, 0, 0).encode((c.Start(agent.id, message_id),), 1, now)
    memory = options.memory
    # Where a hook prepares the step, what it begins with is not known yet, nor when, where it may wait.
    announced = not (options.prepare_step or agent.prepare_step or memory is not None)
    if announced:
        chunks += ChunkEncoder(run_id, 1, 1).encode((c.StepStart(f"{message_id}-1", model),), 2, now)
    run = RunRow(
        tenant=request.tenant,
        run_id=run_id,
        agent_id=agent.id,
        state="running",
        principal=request.principal,
        create_time=now,
        update_time=now,
        owner=owner,
        fence=1,
        last_sequence=1 + announced,
        step=1,
        attempt=int(announced),
        root_run_id=run_id,
        agent_version=agent.version,
        thread_id="" if memory is None else memory.thread_id,
        resource_id="" if memory is None else memory.resource_id,
    )
    spec = RunSpec(request.input, options, instructions, message_id)
    return NewRun(run, spec, ChunkRow(1, run.last_sequence, chunks), announced)
