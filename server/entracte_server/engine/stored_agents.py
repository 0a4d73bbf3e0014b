"""Agents made of data: which versions a run begins with, and the agents that these are.

Versions never change, so what they say is kept once it was read; which of them is published, or archived, is
read anew for every run that begins. A run keeps the versions it began with, as `RunOptions.versions`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.by_data import agent_from
from entracte_server.domain.agents import AgentVersionRow
from entracte_server.domain.data import Data
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.options import AgentPin
from entracte_server.domain.runs import PendingRow, RunRow, Snapshot
from entracte_server.engine.services import EmbedderResolver, ModelResolver
from entracte_server.engine.toolsets import VERSION
from entracte_server.models.base import Model
from entracte_server.store.base import NotFound, Store

K = TypeVar("K")
V = TypeVar("V")

MAX_AGENTS = 64
"""Agents made of data in the tree of one run."""

MAX_KEPT = 1024
"""Versions, and trees of agents, that are kept for the next run."""


class VersionChoice(Data, frozen=True):
    """The version of an agent that a caller chooses: by id, or else by status."""

    version_id: str = ""
    status: Literal["published", "draft"] = "published"


@dataclass(frozen=True, slots=True)
class Tree:
    """The agent of a run, and those that may have a run below it, by id; `versions` are those of the agents
    made of data among them."""

    agent: Agent
    agents: Mapping[str, Agent]
    versions: tuple[AgentPin, ...] = ()


class Lacking(Exception):
    """This process cannot go on with a run: what it lacks, in words."""


def _pins(needs: Iterable[str]) -> Iterator[AgentPin]:
    """The versions among what a run needs."""
    for need in needs:
        kind, _, name = need.partition(" ")
        if kind == VERSION:
            yield AgentPin(*name.split(" "))


class StoredAgents:
    """See the module. For the runs of one process."""

    def __init__(self, app: App, store: Store, resolve: ModelResolver, embedder: EmbedderResolver) -> None:
        self._app = app
        self._embedder = embedder
        self._store = store
        self._resolve = resolve
        self._versions: dict[tuple[str, AgentPin], AgentVersionRow] = {}
        self._trees: dict[tuple[str, str, tuple[AgentPin, ...]], Tree] = {}

    # ---- runs that begin ----

    async def choose(
        self, tenant: str, agent_id: str, choices: Mapping[str, VersionChoice], *, drafts: bool
    ) -> Tree:
        """The agent that a run begins with, and those below it. `drafts`: the caller may use them.

        Raises `Refusal` AGENT_NOT_FOUND, AGENT_VERSION_NOT_FOUND, AGENT_NOT_PUBLISHED,
        AGENT_VERSION_ARCHIVED, AGENT_VERSION_UNUSABLE, ROLE_REQUIRED, and REQUEST_INVALID for a choice for an
        agent that has no versions in this run.
        """
        app = self._app
        pins: dict[str, AgentPin] = {}
        waiting = [] if agent_id in app.agents else [agent_id]
        while waiting:
            one = waiting.pop(0)
            if one in pins or one in app.agents:
                continue
            if len(pins) == MAX_AGENTS:
                raise _unusable(pins[agent_id], f"its tree has more than {MAX_AGENTS} agents")
            try:
                version = await self._choose(tenant, one, choices.get(one, VersionChoice()), drafts)
            except NotFound:
                if one != agent_id:
                    raise _unusable(pins[agent_id], f"there is no agent {one!r} any more") from None
                raise agent_not_found(one) from None
            pins[one] = AgentPin(one, version.version_id)
            if version.definition is not None:
                waiting += [sub.agent_id for sub in version.definition.agents]
        for one in choices:
            if one not in pins:
                why = "is written in Python and has no versions" if one in app.every_agent else "has no part"
                raise invalid(f"options.versions.{one}", f"the agent {one!r} {why}: leave it out of this run")
        versions = tuple(pins.values())
        try:
            return await self.tree(tenant, agent_id, versions)
        except Lacking as lacking:
            raise _unusable(pins[agent_id], str(lacking)) from None

    async def _choose(
        self, tenant: str, agent_id: str, choice: VersionChoice, drafts: bool
    ) -> AgentVersionRow:
        if choice.version_id:
            version = await self._chosen(tenant, agent_id, choice.version_id)
        else:
            if choice.status == "draft" and not drafts:
                raise _author_required()
            agent = await self._store.get_agent(tenant, agent_id)
            version_id = agent.draft if choice.status == "draft" else agent.published
            if not version_id:
                raise Refusal(
                    "AGENT_NOT_PUBLISHED",
                    f"The agent {agent_id!r} has no {choice.status} version.",
                    agent_id=agent_id,
                    status=choice.status,
                )
            return await self._version(tenant, AgentPin(agent_id, version_id))
        if version.status == "draft" and not drafts:
            raise _author_required()
        return version

    async def _chosen(self, tenant: str, agent_id: str, version_id: str) -> AgentVersionRow:
        await self._store.get_agent(tenant, agent_id)
        try:
            version = await self._store.get_agent_version(tenant, agent_id, version_id)
        except NotFound:
            raise version_not_found(agent_id, version_id) from None
        if version.status == "archived":
            raise Refusal(
                "AGENT_VERSION_ARCHIVED",
                f"The version {version_id} of the agent {agent_id!r} was archived.",
                agent_id=agent_id,
                version_id=version_id,
            )
        return version

    # ---- runs that go on ----

    async def tree(self, tenant: str, agent_id: str, versions: tuple[AgentPin, ...]) -> Tree:
        """The agent of a run that has these versions, and those below it. Raises `Lacking`,
        `StoreUnavailable`."""
        app = self._app
        if not any(pin.agent_id == agent_id for pin in versions):
            if agent_id not in app.agents:
                raise Lacking(f"the agent {agent_id!r} is not registered")
            return Tree(app.agents[agent_id], app.every_agent)
        key = (tenant, agent_id, versions)
        tree = self._trees.get(key)
        if tree is None:
            rows = {pin.agent_id: await self._version(tenant, pin) for pin in versions}
            made: dict[str, Agent] = {}
            agent = self._make(agent_id, rows, made, ())
            tree = Tree(agent, {**app.every_agent, **made}, versions)
            _keep(self._trees, key, tree)
        return tree

    async def tree_of(self, run: RunRow, pending: PendingRow) -> Tree:
        """As `tree`, of a run of which a call waits."""
        return await self.tree(run.tenant, run.agent_id, tuple(_pins(pending.needs)))

    async def agent_of(self, snapshot: Snapshot) -> Agent | None:
        """The agent of a run that is a root; None where it cannot be had here. Raises `StoreUnavailable`."""
        run = snapshot.run
        try:
            return (await self.tree(run.tenant, run.agent_id, snapshot.spec.options.versions)).agent
        except Lacking:
            return None

    def check(self, version: AgentVersionRow, rows: Mapping[str, AgentVersionRow]) -> Agent:
        """The agent of a version that is not stored yet, where those it delegates to are of these versions.
        Raises `Lacking`."""
        return self._make(version.agent_id, {**rows, version.agent_id: version}, {}, ())

    async def published_below(self, tenant: str, version: AgentVersionRow) -> dict[str, AgentVersionRow]:
        """The versions that a run of this one would have below it: the published ones, or the newest drafts
        of agents that have none. Raises `Lacking` for an agent that is not there."""
        rows: dict[str, AgentVersionRow] = {}
        waiting = [version]
        while waiting:
            row = waiting.pop()
            for sub in row.definition.agents if row.definition is not None else ():
                one = sub.agent_id
                if one in self._app.agents or one in rows or one == version.agent_id:
                    continue
                try:
                    agent = await self._store.get_agent(tenant, one)
                except NotFound:
                    raise Lacking(f"there is no agent {one!r}") from None
                version_id = agent.published or agent.draft
                if not version_id:
                    raise Lacking(f"every version of the agent {one!r} is archived")
                rows[one] = await self._version(tenant, AgentPin(one, version_id))
                waiting.append(rows[one])
                if len(rows) >= MAX_AGENTS:
                    raise Lacking(f"its tree has more than {MAX_AGENTS} agents")
        return rows

    def _make(
        self,
        agent_id: str,
        rows: Mapping[str, AgentVersionRow],
        made: dict[str, Agent],
        above: tuple[str, ...],
    ) -> Agent:
        """The agent of a version, with those below it. Raises `Lacking`."""
        if agent_id in above:
            raise Lacking(
                f"the agent {agent_id!r} would delegate to itself: {' > '.join((*above, agent_id))}"
            )
        row = rows.get(agent_id)
        if row is None:
            if agent_id not in self._app.agents:
                raise Lacking(f"there is no agent {agent_id!r}")
            return self._app.agents[agent_id]
        if agent_id not in made:
            below = row.definition.agents if row.definition is not None else ()
            agents = {sub.agent_id: self._make(sub.agent_id, rows, made, (*above, agent_id)) for sub in below}
            try:
                agent = agent_from(self._app, row, agents)
                self._resolve(agent)
                for name in _models(agent):
                    self._resolve(name)
            except ValueError as error:
                raise Lacking(str(error)) from None
            made[agent_id] = agent
        return made[agent_id]

    async def _version(self, tenant: str, pin: AgentPin) -> AgentVersionRow:
        """What a version says, with a status as of some time. Raises `Lacking`, `StoreUnavailable`."""
        key = (tenant, pin)
        row = self._versions.get(key)
        if row is None:
            try:
                row = await self._store.get_agent_version(tenant, pin.agent_id, pin.version_id)
            except NotFound:
                raise Lacking(f"version {pin.version_id} of the agent {pin.agent_id}") from None
            _keep(self._versions, key, row)
        return row

    # ---- what versions name ----

    def models_of(self, agent: Agent) -> Sequence[Model]:
        """The models of an agent, in the order they are tried."""
        return self._resolve(agent)

    def check_model(self, name: str) -> None:
        """Raises `ValueError` for a model that cannot be asked."""
        self._resolve(name)

    def check_embedder(self, name: str) -> None:
        """Raises `ValueError` for an embedder that cannot be asked."""
        self._embedder(name)

    async def knows(self, tenant: str, agent_id: str) -> bool:
        """Whether there is an agent of this id, written in Python or made of data. Raises
        `StoreUnavailable`."""
        if agent_id in self._app.agents:
            return True
        try:
            await self._store.get_agent(tenant, agent_id)
        except NotFound:
            return False
        return True


def _models(agent: Agent) -> Iterator[str]:
    """The models that an agent made of data names beside its own."""
    if agent.structured_output is not None and agent.structured_output.options.model:
        yield agent.structured_output.options.model
    if agent.memory is not None and agent.memory.title_model_name:
        yield agent.memory.title_model_name


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    if len(kept) >= MAX_KEPT:
        kept.clear()
    kept[key] = value


def _author_required() -> Refusal:
    return Refusal("ROLE_REQUIRED", "Using a draft needs the role 'author'.", role="author")


def agent_not_found(agent_id: str) -> Refusal:
    """The refusal for an agent that is not there."""
    return Refusal("AGENT_NOT_FOUND", f"There is no agent {agent_id!r}.", agent_id=agent_id)


def version_not_found(agent_id: str, version_id: str) -> Refusal:
    """The refusal for a version that is not there."""
    return Refusal(
        "AGENT_VERSION_NOT_FOUND",
        f"The agent {agent_id!r} has no such version.",
        agent_id=agent_id,
        version_id=version_id,
    )


def _unusable(pin: AgentPin, why: str) -> Refusal:
    return unusable(pin.agent_id, pin.version_id, why)


def unusable(agent_id: str, version_id: str, why: str) -> Refusal:
    """The refusal for a version that names what this server does not have."""
    return Refusal(
        "AGENT_VERSION_UNUSABLE",
        f"The agent {agent_id!r} cannot be used here: {why}.",
        agent_id=agent_id,
        version_id=version_id,
    )
