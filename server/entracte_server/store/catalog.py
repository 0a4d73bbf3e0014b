"""The part of a store that keeps agents made of data: versions that never change, and which is published.

Nothing of it is ever deleted: runs go on with the version they began with. Whoever publishes, archives or
makes a version of an agent does it alone; who comes later sees what was done.
"""

from typing import Protocol

from entracte_server.domain.agents import AgentRow, AgentVersionRow
from entracte_server.domain.data import Data
from entracte_server.store.requests import Made, RequestKey


class CreateAgentVersion(Data, frozen=True):
    """Add a version, with the next number, to its agent, which is made where it does not exist."""

    version: AgentVersionRow
    request: RequestKey | None = None


class PublishAgentVersion(Data, frozen=True):
    """Have a version be the published one; if `if_published` is (empty: if none is), where that is given."""

    tenant: str
    agent_id: str
    version_id: str
    principal: str
    now: int
    if_published: str | None = None
    request: RequestKey | None = None


class ArchiveAgentVersion(Data, frozen=True):
    """Archive a version. Where it is the published one, none is from then on."""

    tenant: str
    agent_id: str
    version_id: str
    now: int
    request: RequestKey | None = None


class CatalogStore(Protocol):
    """See the module. All methods raise `StoreUnavailable` when the database does not answer.

    Versions come as they are from then on, with what they say only from `get_agent_version`. `Made.run_id`
    is the id of the version.
    """

    async def create_agent_version(self, op: CreateAgentVersion) -> tuple[AgentVersionRow, Made | None]:
        """Raises `RequestReused`."""
        ...

    async def publish_agent_version(self, op: PublishAgentVersion) -> tuple[AgentVersionRow, Made | None]:
        """Raises `NotFound`, `PublishedChanged`, `RequestReused`."""
        ...

    async def archive_agent_version(self, op: ArchiveAgentVersion) -> tuple[AgentVersionRow, Made | None]:
        """Raises `NotFound`, `RequestReused`."""
        ...

    async def get_agent(self, tenant: str, agent_id: str) -> AgentRow:
        """Raises `NotFound`."""
        ...

    async def get_agent_version(self, tenant: str, agent_id: str, version_id: str) -> AgentVersionRow:
        """With what it says. Raises `NotFound`."""
        ...

    async def list_agents(self, tenant: str, *, after: str, limit: int) -> list[AgentRow]:
        """The agents of a tenant whose ids come after `after`, by id (in the order of code points)."""
        ...

    async def list_agent_versions(
        self, tenant: str, agent_id: str, *, before: int, limit: int
    ) -> list[AgentVersionRow]:
        """The versions of an agent whose numbers are before `before` (0: all), newest first; none where there
        is no such agent."""
        ...
