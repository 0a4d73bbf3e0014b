"""What a row of the matrix is, and what its check is given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from entracte import Chunk, FollowUp, GenerateResult, PendingCall, ThreadMessage
from entracte_server.models.base import ModelRequest
from tests.matrix.course import Course, World

Ending = Literal["answer", "early", "failed", "cancelled"]


@dataclass
class Seen:
    """All there is to see of a run that was played.

    `results` is what each server gave, in order; `pending` each call that waited, and `answered` the
    server it was answered in. Servers are counted from 0: what is noted or shown since 1 came after the
    first suspension and a restart, what came since 2 after two of them.
    """

    course: Course
    world: World
    results: list[GenerateResult] = field(default_factory=list)
    pending: dict[str, PendingCall] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    chunks: Sequence[Chunk] = ()
    follow_ups: Sequence[FollowUp] = ()
    spans: Sequence[Any] = ()
    said: Sequence[ThreadMessage] = ()

    @property
    def result(self) -> GenerateResult:
        """What the run came to."""
        return self.results[-1]

    @property
    def got_to_the_end(self) -> bool:
        """Whether the model gave its last answer."""
        return self.result.stop_cause in ("model-finished", "task-incomplete")

    def requests(self, *, since: int = 0) -> list[ModelRequest]:
        """What the model was sent from a server on: not nothing."""
        found: list[ModelRequest] = self.world.of("request", since=since)
        assert found
        return found

    def texts(self, role: str, *, since: int = 0) -> list[list[str]]:
        """The texts of the messages of a role, request by request."""
        return [[m.text for m in r.messages if m.role == role] for r in self.requests(since=since)]

    def tools(self, *, since: int = 0) -> list[list[str]]:
        """The names of the tools that were offered, request by request."""
        return [[tool.name for tool in request.tools] for request in self.requests(since=since)]

    def entered(self, *, since: int = 0) -> dict[str, Any]:
        """The calls whose tools were entered, with the request context these were given."""
        return dict(self.world.of("entered", since=since))

    def of(self, *types: str) -> list[Any]:
        """The chunks of these types."""
        return [chunk for chunk in self.chunks if chunk.type in types]

    def outcome(self, call_id: str) -> Any:
        """What came of a call: its result, or an exception text."""
        [chunk] = [c for c in self.of("tool-result", "tool-error") if c.tool_call_id == call_id]
        return chunk.result if chunk.type == "tool-result" else chunk.error


def _nothing(_: Any) -> None:
    return None


def _no_keywords(_: Any) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Row:
    """One option, in one of its forms.

    `name` is the option, with `:form` where it has several. `sets` gives the keywords of `generate`, once
    all rows have changed the `course`; `agent` and `app` those of the agent and the app, for each server
    anew. `ending` says how the run ends: with the model's last answer, `early` after the step `second`, or
    within the last answer. `needs` is how it has to end for there to be something to check: `success`
    includes `early`. `settings` are the server's. `slow`: it has to wait, so that it is paired only in the
    whole matrix.
    """

    name: str
    check: Callable[[Seen], None]
    sets: Callable[[Course], Mapping[str, Any]] = _no_keywords
    course: Callable[[Course], None] = _nothing
    agent: Callable[[World], Mapping[str, Any]] = _no_keywords
    app: Callable[[World], Mapping[str, Any]] = _no_keywords
    ending: Ending = "answer"
    needs: Literal["", "success", "answer"] = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False

    @property
    def option(self) -> str:
        """The option it is about."""
        return self.name.partition(":")[0]

    @property
    def keywords(self) -> set[str]:
        """What it sets of the run, here or on the agent."""
        return {*self.sets(Course()), *self.agent(World(Course()))} - {"tools", "prices", "hooks"}
