"""The catalog: which agents can be called, and the versions of those that are made of data."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal, Unpack

from entracte._agent_codec import agent_of, details_of, to_definition, version_of
from entracte._agent_records import AgentDefinition, AgentDetails, AgentInfo, AgentVersion
from entracte._connection import Connection
from entracte._ids import new_id
from entracte._options import CallOptions, Version
from entracte._options_codec import check_names, to_version
from entracte._paging import all_items
from entracte._results import Page
from entracte.v1 import catalog_service_pb2 as pb


class AgentPages(CallOptions, total=False):
    """How agents and versions are listed."""

    page_size: int
    """How many one request asks for, 1 to 1000. Default 50."""


class AgentsClient:
    """The agents of a server: `client.agents`. All methods raise EntracteError.

    Making, publishing and archiving versions needs the role `author`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, **pages: Unpack[AgentPages]) -> AsyncGenerator[AgentInfo, None]:
        """All agents that can be called, by id; asks for page after page."""

        async def page_after(token: str) -> Page[AgentInfo]:
            return await self.list_page(token, **pages)

        return all_items(page_after)

    async def list_page(self, page_token: str = "", **pages: Unpack[AgentPages]) -> Page[AgentInfo]:
        """One page of `list`: the first, or the one that a `next_page_token` names. Raises
        PageTokenInvalid."""
        check_names(pages, AgentPages.__annotations__, "list")
        request = pb.ListAgentsRequest(page_size=pages.get("page_size", 0), page_token=page_token)
        within = pages.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.catalog.ListAgents, request, within=within)
        return Page(tuple(map(agent_of, response.agents)), response.next_page_token)

    async def get(
        self,
        agent_id: str,
        *,
        version: Literal["draft", "published"] | Version | Mapping[str, Any] | None = None,
        **call: Unpack[CallOptions],
    ) -> AgentDetails:
        """Reads an agent, with a version of it: the published one, or else the newest draft, unless another
        is named. Raises AgentNotFound and AgentVersionNotFound."""
        request = pb.GetAgentRequest(
            agent_id=agent_id, version=None if version is None else to_version(version)
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.catalog.GetAgent, request, within=within)
        return details_of(response)

    async def create_version(
        self,
        agent_id: str,
        definition: AgentDefinition | Mapping[str, Any],
        *,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> AgentVersion:
        """Makes a version of an agent, a draft, and the agent where it is the first. A dict is the JSON form
        of the contract, as `AgentVersion.definition` has it.

        Raises RequestInvalid naming the field, AgentDefinedInCode and ToolsetUnavailable.
        """
        request = pb.CreateAgentVersionRequest(
            agent_id=agent_id, definition=to_definition(definition), request_id=request_id or new_id()
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.catalog.CreateAgentVersion, request, within=within
        )
        return version_of(response.version)

    async def publish(
        self,
        agent_id: str,
        version_id: str,
        *,
        if_published: str | None = None,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> AgentVersion:
        """Has runs that begin from now on use a version, unless they say otherwise; with `if_published` only
        if that is the published one now (empty: if none is).

        Raises AgentNotFound, AgentVersionNotFound, PublishedVersionChanged and AgentVersionUnusable.
        """
        request = pb.PublishAgentVersionRequest(
            agent_id=agent_id,
            version_id=version_id,
            if_published=if_published,
            request_id=request_id or new_id(),
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.catalog.PublishAgentVersion, request, within=within
        )
        return version_of(response.version)

    async def archive(
        self, agent_id: str, version_id: str, *, request_id: str | None = None, **call: Unpack[CallOptions]
    ) -> AgentVersion:
        """Has no run that begins from now on use a version; runs that have it go on. Raises AgentNotFound and
        AgentVersionNotFound."""
        request = pb.ArchiveAgentVersionRequest(
            agent_id=agent_id, version_id=version_id, request_id=request_id or new_id()
        )
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.catalog.ArchiveAgentVersion, request, within=within
        )
        return version_of(response.version)

    def versions(self, agent_id: str, **pages: Unpack[AgentPages]) -> AsyncGenerator[AgentVersion, None]:
        """All versions of an agent made of data, newest first, without what they say; asks for page after
        page. Raises AgentNotFound from the iteration."""

        async def page_after(token: str) -> Page[AgentVersion]:
            return await self.versions_page(agent_id, token, **pages)

        return all_items(page_after)

    async def versions_page(
        self, agent_id: str, page_token: str = "", **pages: Unpack[AgentPages]
    ) -> Page[AgentVersion]:
        """One page of `versions`. Raises AgentNotFound and PageTokenInvalid."""
        check_names(pages, AgentPages.__annotations__, "versions")
        request = pb.ListAgentVersionsRequest(
            agent_id=agent_id, page_size=pages.get("page_size", 0), page_token=page_token
        )
        within = pages.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.catalog.ListAgentVersions, request, within=within
        )
        return Page(tuple(map(version_of, response.versions)), response.next_page_token)
