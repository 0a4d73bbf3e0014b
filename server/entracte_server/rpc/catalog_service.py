"""CatalogService: shows agents, and keeps those that are made of data."""

import hashlib
import heapq
import re

from entracte.v1 import catalog_service_pb2 as pb
from entracte_server.domain.agents import AgentRow, AgentVersionRow
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.ids import new_id
from entracte_server.engine.engine import Engine
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.stored_agents import (
    Lacking,
    VersionChoice,
    agent_not_found,
    unusable,
    version_not_found,
)
from entracte_server.rpc import agents, checks
from entracte_server.rpc.agent_definitions import new_agent_id, version_from
from entracte_server.rpc.call import Call, Context, current
from entracte_server.rpc.version_options import choice_from
from entracte_server.store.base import NotFound, PublishedChanged
from entracte_server.store.catalog import ArchiveAgentVersion, CreateAgentVersion, PublishAgentVersion

NEWEST = 20
"""Versions that are shown with an agent."""

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


class CatalogService:
    """See the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- reading ----

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:
        """List the agents that can be called, by id."""
        size, after = checks.page_size(request.page_size), _id_in(checks.page_cursor(request))
        written = self._engine.app.agents
        tenant = current.get().principal.tenant
        # Enough of both that a page is full, and one more tells whether another follows. Where an agent has
        # become one that is written in Python, that one is called.
        rows = await self._engine.store.list_agents(tenant, after=after, limit=size + 1 + len(written))
        stored = [agents.agent_message(row) for row in rows if row.agent_id not in written]
        code = [agents.code_message(written[name]) for name in sorted(written) if name > after]
        found = list(heapq.merge(code, stored, key=lambda agent: agent.agent_id))
        cursor = _cursor(found[size - 1].agent_id) if len(found) > size else ""
        return pb.ListAgentsResponse(agents=found[:size], next_page_token=checks.page_token(request, cursor))

    async def GetAgent(self, request: pb.GetAgentRequest, context: Context) -> pb.GetAgentResponse:
        """Read an agent, with a version of it."""
        agent_id = checks.identifier("agent_id", request.agent_id)
        choice = choice_from("version", request.version) if request.HasField("version") else None
        written = self._engine.app.agents.get(agent_id)
        if written is not None:
            if choice is not None:
                raise invalid("version", f"the agent {agent_id!r} is written in Python: leave it out")
            return pb.GetAgentResponse(agent=agents.code_message(written), parts=agents.code_parts(written))
        tenant = current.get().principal.tenant
        agent = await self._agent(tenant, agent_id)
        version_id = _version_id(agent, choice)
        response = pb.GetAgentResponse(
            agent=agents.agent_message(agent),
            versions=map(
                agents.version_message,
                await self._engine.store.list_agent_versions(tenant, agent_id, before=0, limit=NEWEST),
            ),
        )
        if version_id:
            version = await self._version(tenant, agent_id, version_id)
            response.version.CopyFrom(agents.version_message(version))
            response.parts.CopyFrom(agents.parts(version))
        return response

    async def ListAgentVersions(
        self, request: pb.ListAgentVersionsRequest, context: Context
    ) -> pb.ListAgentVersionsResponse:
        """List the versions of an agent, newest first."""
        agent_id = checks.identifier("agent_id", request.agent_id)
        size, cursor = checks.page_size(request.page_size), checks.page_cursor(request)
        if cursor and not _NUMBER.fullmatch(cursor):
            raise checks.bad_page_token()
        tenant = current.get().principal.tenant
        await self._agent(tenant, agent_id)
        rows = await self._engine.store.list_agent_versions(
            tenant, agent_id, before=int(cursor or 0), limit=size + 1
        )
        following = str(rows[size - 1].number) if len(rows) > size else ""
        return pb.ListAgentVersionsResponse(
            versions=map(agents.version_message, rows[:size]),
            next_page_token=checks.page_token(request, following),
        )

    async def _agent(self, tenant: str, agent_id: str) -> AgentRow:
        try:
            return await self._engine.store.get_agent(tenant, agent_id)
        except NotFound:
            raise agent_not_found(agent_id) from None

    async def _version(self, tenant: str, agent_id: str, version_id: str) -> AgentVersionRow:
        try:
            return await self._engine.store.get_agent_version(tenant, agent_id, version_id)
        except NotFound:
            await self._agent(tenant, agent_id)
            raise version_not_found(agent_id, version_id) from None

    # ---- changing ----

    async def CreateAgentVersion(
        self, request: pb.CreateAgentVersionRequest, context: Context
    ) -> pb.CreateAgentVersionResponse:
        """Make a version, a draft."""
        call = self._author()
        tenant = call.principal.tenant
        agent_id = new_agent_id("agent_id", request.agent_id)
        if not request.HasField("definition"):
            raise invalid("definition", "is required")
        key = checks.request_key(request)
        store = self._engine.store
        # What a repeated request names need not be there any more.
        if key is not None and (made := await store.find_request(key)) is not None:
            known = await self._version(tenant, agent_id, made.run_id)
            return pb.CreateAgentVersionResponse(version=agents.version_message(known), replayed=True)
        if agent_id in self._engine.app.every_agent:
            raise Refusal(
                "AGENT_DEFINED_IN_CODE",
                f"An agent {agent_id!r} is written in Python: give this one another id.",
                agent_id=agent_id,
            )
        version = AgentVersionRow(
            tenant=tenant,
            agent_id=agent_id,
            version_id=new_id(),
            name=agent_id,
            description="",
            creator=call.principal.name,
            create_time=now_ms(),
        )
        version = await version_from(self._engine, request.definition, version)
        created, made = await store.create_agent_version(CreateAgentVersion(version, key))
        message = agents.version_message(created)
        message.definition.CopyFrom(request.definition)
        return pb.CreateAgentVersionResponse(version=message, replayed=made is not None)

    async def PublishAgentVersion(
        self, request: pb.PublishAgentVersionRequest, context: Context
    ) -> pb.PublishAgentVersionResponse:
        """Have new runs use a version."""
        call = self._author()
        tenant = call.principal.tenant
        agent_id = checks.identifier("agent_id", request.agent_id)
        version_id = checks.identifier("version_id", request.version_id)
        key = checks.request_key(request)
        if key is None or await self._engine.store.find_request(key) is None:
            await self._check_usable(tenant, agent_id, version_id)
        op = PublishAgentVersion(
            tenant=tenant,
            agent_id=agent_id,
            version_id=version_id,
            principal=call.principal.name,
            now=now_ms(),
            if_published=request.if_published if request.HasField("if_published") else None,
            request=key,
        )
        try:
            version, made = await self._engine.store.publish_agent_version(op)
        except PublishedChanged as changed:
            raise Refusal(
                "PUBLISHED_VERSION_CHANGED",
                "Another version of the agent is published than the one that was to be replaced.",
                agent_id=agent_id,
                published_version_id=changed.published,
            ) from None
        return pb.PublishAgentVersionResponse(
            version=agents.version_message(version), replayed=made is not None
        )

    async def _check_usable(self, tenant: str, agent_id: str, version_id: str) -> None:
        version = await self._version(tenant, agent_id, version_id)
        catalog = self._engine.agents
        try:
            catalog.check(version, await catalog.published_below(tenant, version))
        except Lacking as lacking:
            raise unusable(agent_id, version_id, str(lacking)) from None

    async def ArchiveAgentVersion(
        self, request: pb.ArchiveAgentVersionRequest, context: Context
    ) -> pb.ArchiveAgentVersionResponse:
        """Have no new run use a version."""
        call = self._author()
        tenant = call.principal.tenant
        agent_id = checks.identifier("agent_id", request.agent_id)
        version_id = checks.identifier("version_id", request.version_id)
        op = ArchiveAgentVersion(tenant, agent_id, version_id, now_ms(), checks.request_key(request))
        try:
            version, made = await self._engine.store.archive_agent_version(op)
        except NotFound:
            await self._agent(tenant, agent_id)
            raise version_not_found(agent_id, version_id) from None
        return pb.ArchiveAgentVersionResponse(
            version=agents.version_message(version), replayed=made is not None
        )

    def _author(self) -> Call:
        """A call of somebody who may change agents."""
        call = current.get()
        call.require("author")
        return call


def _cursor(agent_id: str) -> str:
    """The cursor after an agent, which tells whether it is whole."""
    return f"{hashlib.sha256(agent_id.encode()).hexdigest()[:16]} {agent_id}"


def _id_in(cursor: str) -> str:
    """The id of the agent that a page ended with; empty at the start. Raises `Refusal`."""
    agent_id = cursor.partition(" ")[2]
    if cursor and cursor != _cursor(agent_id):
        raise checks.bad_page_token()
    return agent_id


def _version_id(agent: AgentRow, choice: VersionChoice | None) -> str:
    """The version that is to be read; empty where there is none. Raises `Refusal`."""
    if choice is None:
        return agent.published or agent.draft
    if choice.version_id:
        return choice.version_id
    version_id = agent.draft if choice.status == "draft" else agent.published
    if not version_id:
        raise version_not_found(agent.agent_id, "")
    return version_id
