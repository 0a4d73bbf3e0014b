"""The follow-up jobs that score the result of a run."""

from collections.abc import Mapping

from entracte_server.agents.scorers import Scorer
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import Snapshot
from entracte_server.engine import prompt
from entracte_server.engine.follow_up_jobs import scorer_handler
from entracte_server.engine.follow_ups import Attempt
from entracte_server.engine.scoring import ScorerRunner, scorer_input


class ScoreJobs:
    """Runs the scorers of an app on results. `limit` is how many seconds one may take that does not say."""

    def __init__(self, scorers: Mapping[str, Scorer], runner: ScorerRunner, limit: float) -> None:
        self._scorers = scorers
        self._runner = runner
        self.handlers = frozenset(scorer_handler(scorer.name) for scorer in scorers.values())
        self.longest = max((scorer.timeout or 0.0 for scorer in scorers.values()), default=0.0)
        self.longest = max(self.longest, limit)

    def lacks(self, row: FollowUpRow) -> str:
        """See `FollowUpRunner`."""
        return "" if row.subject in self._scorers else f"No server has a scorer called {row.subject!r}."

    def lost(self, row: FollowUpRow) -> str:
        """See `FollowUpRunner`."""
        return "The processes that ran the scorer died."

    async def run(self, row: FollowUpRow, snapshot: Snapshot) -> Attempt:
        """See `FollowUpRunner`."""
        spec = prompt.processed(snapshot.spec, snapshot.processing)
        given = scorer_input(snapshot.run, spec, snapshot.steps, snapshot.calls)
        scored = await self._runner.run(self._scorers[row.subject], given)
        return Attempt(
            error="" if scored.score is not None else scored.error or "It gave no score.",
            score=scored.score,
            reason=scored.reason,
            usage=scored.usage,
            duration_ms=scored.duration_ms,
        )
