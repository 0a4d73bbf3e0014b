"""The definition of an agent made of data, checked and put into the form it is stored in."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from entracte.v1 import agent_pb2, options_pb2
from entracte_server.agents.agent import Agent
from entracte_server.agents.by_data import memory_from, tool_named
from entracte_server.agents.delegating import PREFIX
from entracte_server.agents.tools import NAME
from entracte_server.domain.agents import (
    AgentDefinition,
    AgentVersionRow,
    MemorySettings,
    RecallSettings,
    SubAgent,
    WorkingMemorySettings,
)
from entracte_server.domain.errors import FieldViolation, Refusal, invalid
from entracte_server.domain.options import RunOptions
from entracte_server.engine.engine import Engine
from entracte_server.engine.stored_agents import Lacking
from entracte_server.rpc import checks
from entracte_server.rpc.memory_options import MAX_MESSAGES
from entracte_server.rpc.options import check_supported, options_from, refuse_unknown
from entracte_server.rpc.registered import check_registered
from entracte_server.store.base import NotFound

FIELD = "definition"
MAX_DEFINITION = 256 * 1024
MAX_TEXT = 64 * 1024
MAX_NAME = 256
"""Characters."""

MAX_DESCRIPTION = 4000
MAX_INSTRUCTIONS = 64
MAX_MODELS = 8
MAX_TOOLS = 128
MAX_TOOLSETS = 32
MAX_SUB_AGENTS = 32

AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,58}")

NOT_DEFAULTS = frozenset(
    {
        "run_id",
        "instructions",
        "system",
        "context",
        "memory",
        "toolsets",
        "client_tools",
        "active_tools",
        "request_context",
        "versions",
        "output",
        "execution_timeout",
        "cancel_on_disconnect",
        "include_request_body",
        "save_per_step",
        "auto_resume_suspended_tools",
    }
)
"""The options that say how one run is, not how an agent works."""

_WORKING_SCOPES = {
    agent_pb2.AgentWorkingMemory.SCOPE_UNSPECIFIED: "resource",
    agent_pb2.AgentWorkingMemory.SCOPE_RESOURCE: "resource",
    agent_pb2.AgentWorkingMemory.SCOPE_THREAD: "thread",
}
_RECALL_SCOPES = {
    options_pb2.SemanticRecall.SCOPE_UNSPECIFIED: None,
    options_pb2.SemanticRecall.SCOPE_THREAD: "thread",
    options_pb2.SemanticRecall.SCOPE_RESOURCE: "resource",
}

T = TypeVar("T")


def new_agent_id(field: str, value: str) -> str:
    """The id of an agent made of data, which is also part of a tool's name."""
    if not AGENT_ID.fullmatch(value):
        raise invalid(field, "use 1 to 58 characters of letters, digits, '_' and '-'")
    return value


async def version_from(
    engine: Engine, given: agent_pb2.AgentDefinition, version: AgentVersionRow
) -> AgentVersionRow:
    """`version` with what it says. Raises `Refusal` naming the field, and TOOLSET_UNAVAILABLE where the tools
    of a toolset cannot be listed."""
    source = given.SerializeToString(deterministic=True)
    if len(source) > MAX_DEFINITION:
        raise invalid(FIELD, f"is larger than {MAX_DEFINITION} bytes")
    refuse_unknown(FIELD, given)
    if len(given.name) > MAX_NAME or not given.name.isprintable():
        raise invalid(f"{FIELD}.name", f"use at most {MAX_NAME} printable characters")
    said = AgentDefinition(
        models=_models(engine, given.models),
        instructions=_instructions(given.instructions),
        tools=_tools(engine, given.tools),
        toolsets=_toolsets(engine, given.toolsets),
        agents=_sub_agents(version.agent_id, given.agents),
        memory=_memory(engine, given.memory) if given.HasField("memory") else None,
    )
    version = msgspec.structs.replace(
        version,
        name=given.name or version.agent_id,
        description=checks.text(f"{FIELD}.description", given.description, MAX_DESCRIPTION),
        definition=said,
        source=source,
    )
    await _look_for_agents(engine, version)
    agent = await _checked(engine, version)
    defaults = await _defaults(engine, agent, given.defaults, version.tenant)
    version = msgspec.structs.replace(version, definition=msgspec.structs.replace(said, defaults=defaults))
    await _checked(engine, version)
    return version


async def _checked(engine: Engine, version: AgentVersionRow) -> Agent:
    """The agent that a version says, with what is published below it."""
    try:
        return engine.agents.check(version, await engine.agents.published_below(version.tenant, version))
    except Lacking as lacking:
        raise invalid(FIELD, str(lacking)) from None


async def _look_for_agents(engine: Engine, version: AgentVersionRow) -> None:
    assert version.definition is not None
    for i, sub in enumerate(version.definition.agents):
        if sub.agent_id in engine.app.agents or sub.agent_id == version.agent_id:
            continue
        try:
            await engine.store.get_agent(version.tenant, sub.agent_id)
        except NotFound:
            raise invalid(f"{FIELD}.agents[{i}].agent_id", f"there is no agent {sub.agent_id!r}") from None


def _texts(field: str, given: Sequence[str], most: int) -> tuple[str, ...]:
    if len(given) > most:
        raise invalid(field, f"at most {most}")
    for i, item in enumerate(given):
        if item in given[:i]:
            raise invalid(f"{field}[{i}]", f"{item[:80]!r} is given twice")
    return tuple(given)


def _each(field: str, given: Iterable[str], check: Callable[[str], object]) -> None:
    for i, item in enumerate(given):
        try:
            check(item)
        except ValueError as error:
            raise invalid(f"{field}[{i}]", str(error)) from None


def _models(engine: Engine, given: Sequence[str]) -> tuple[str, ...]:
    field = f"{FIELD}.models"
    if not given:
        raise invalid(field, "at least one is required, as provider/model")
    models = _texts(field, given, MAX_MODELS)
    _each(field, models, engine.agents.check_model)
    return models


def _instructions(given: Sequence[str]) -> tuple[str, ...]:
    field = f"{FIELD}.instructions"
    if len(given) > MAX_INSTRUCTIONS:
        raise invalid(field, f"at most {MAX_INSTRUCTIONS}")
    return tuple(checks.text(f"{field}[{i}]", text, MAX_TEXT) for i, text in enumerate(given))


def _tools(engine: Engine, given: Sequence[str]) -> tuple[str, ...]:
    field = f"{FIELD}.tools"
    names = _texts(field, given, MAX_TOOLS)
    _each(field, names, lambda name: tool_named(engine.app, name))
    return names


def _toolsets(engine: Engine, given: Sequence[str]) -> tuple[str, ...]:
    field = f"{FIELD}.toolsets"
    names = _texts(field, given, MAX_TOOLSETS)
    check_registered(field, "toolset", names, engine.app.toolsets)
    return names


def _sub_agents(agent_id: str, given: Sequence[agent_pb2.SubAgent]) -> tuple[SubAgent, ...]:
    field = f"{FIELD}.agents"
    if len(given) > MAX_SUB_AGENTS:
        raise invalid(field, f"at most {MAX_SUB_AGENTS}")
    found: dict[str, SubAgent] = {}
    for i, item in enumerate(given):
        one = checks.identifier(f"{field}[{i}].agent_id", item.agent_id)
        name = item.name or one
        if one == agent_id:
            raise invalid(f"{field}[{i}].agent_id", "an agent cannot delegate to itself")
        if not NAME.fullmatch(PREFIX + name):
            raise invalid(f"{field}[{i}].name", "use at most 58 characters of letters, digits, '_' and '-'")
        if name in found:
            raise invalid(f"{field}[{i}].name", f"two are called {name!r}")
        found[name] = SubAgent(one, name)
    return tuple(found.values())


# ---- defaults ----


async def _defaults(
    engine: Engine, agent: Agent, given: options_pb2.GenerateOptions, tenant: str
) -> RunOptions:
    """What runs are like where their callers do not say."""
    field = f"{FIELD}.defaults"
    for descriptor, _ in given.ListFields():
        if descriptor.name in NOT_DEFAULTS:
            raise invalid(
                f"{field}.{descriptor.name}",
                "says what one run is like, not how an agent works: leave it out",
            )
    if given.pending_call_expiry.default_answers:
        raise invalid(
            f"{field}.pending_call_expiry.default_answers",
            "an agent made of data gives no answers: its tools do",
        )
    try:
        check_supported(given)
        pinned = await engine.toolsets.pin(agent, (), tenant)
        tools = engine.toolsets.server_tools(agent, (), pinned)
        return options_from(engine.app, agent, given, tools, (), ())
    except Refusal as refusal:
        raise _moved(refusal, "options", field) from None


def _moved(refusal: Refusal, old: str, new: str) -> Refusal:
    """A refusal of options, which names their fields, for options that are found elsewhere."""

    def move(text: str) -> str:
        return new + text[len(old) :] if text.startswith(old) else text

    metadata: Mapping[str, str] = {key: move(value) for key, value in refusal.metadata.items()}
    return Refusal(
        refusal.reason,
        move(refusal.message),
        violations=tuple(FieldViolation(move(v.field), v.description) for v in refusal.violations),
        retry_after=refusal.retry_after,
        **metadata,
    )


# ---- memory ----


def _memory(engine: Engine, given: agent_pb2.AgentMemory) -> MemorySettings:
    field = f"{FIELD}.memory"
    if given.HasField("last_messages") and not 0 <= given.last_messages <= MAX_MESSAGES:
        raise invalid(f"{field}.last_messages", f"must be from 0 to {MAX_MESSAGES}")
    if given.HasField("max_history_tokens") and given.max_history_tokens < 1:
        raise invalid(f"{field}.max_history_tokens", "must be at least 1")
    if given.title_model:
        _named(f"{field}.title_model", engine.agents.check_model, given.title_model)
    if (given.title_model or given.title_instructions) and not given.generate_title:
        raise invalid(f"{field}.generate_title", "is needed for what is said about titles")
    memory = MemorySettings(
        last_messages=given.last_messages if given.HasField("last_messages") else None,
        max_history_tokens=given.max_history_tokens if given.HasField("max_history_tokens") else None,
        generate_title=given.generate_title,
        title_model=given.title_model,
        title_instructions=checks.text(f"{field}.title_instructions", given.title_instructions, MAX_TEXT),
        working_memory=_working(f"{field}.working_memory", given),
        semantic_recall=_recall(engine, f"{field}.semantic_recall", given),
    )
    try:
        memory_from(memory)
    except ValueError as error:
        raise invalid(field, str(error)) from None
    return memory


def _named(field: str, check: Callable[[str], T], value: str) -> T:
    try:
        return check(value)
    except ValueError as error:
        raise invalid(field, str(error)) from None


def _working(field: str, given: agent_pb2.AgentMemory) -> WorkingMemorySettings | None:
    if not given.HasField("working_memory"):
        return None
    said = given.working_memory
    scope = _WORKING_SCOPES.get(said.scope)
    if scope is None:
        raise invalid(f"{field}.scope", "is not a scope this server knows")
    form = said.WhichOneof("form")
    template = checks.text(f"{field}.template", said.template, MAX_TEXT) if form == "template" else None
    schema = checks.schema(f"{field}.schema", said.schema) if form == "schema" else None
    return WorkingMemorySettings(template, schema, scope)  # type: ignore[arg-type]


def _recall(engine: Engine, field: str, given: agent_pb2.AgentMemory) -> RecallSettings | None:
    if not given.HasField("semantic_recall"):
        return None
    said = given.semantic_recall
    _named(
        f"{field}.embedder",
        engine.agents.check_embedder,
        checks.identifier(f"{field}.embedder", said.embedder),
    )
    if said.search.scope not in _RECALL_SCOPES:
        raise invalid(f"{field}.search.scope", "is not a scope this server knows")
    return RecallSettings(
        said.embedder,
        top_k=said.search.top_k if said.search.HasField("top_k") else None,
        message_range=said.search.message_range if said.search.HasField("message_range") else None,
        scope=_RECALL_SCOPES[said.search.scope],  # type: ignore[arg-type]
    )
