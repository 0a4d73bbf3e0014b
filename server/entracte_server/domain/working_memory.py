"""What agents noted down for later runs."""

from entracte_server.domain.data import Data


class WorkingMemoryRow(Data, frozen=True):
    """The working memory of a thread (`thread_id`) or of a resource (`resource_id`); the other is empty.

    `content` is markdown, or the JSON text of an object, as the agent's working memory says. `version` grows
    with every change, from 1; 0: nothing was noted yet.
    """

    tenant: str
    thread_id: str = ""
    resource_id: str = ""
    content: str = ""
    version: int = 0
    update_time: int = 0
