"""What is done about a run after its end, as it is settled."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from entracte._connection import Connection
from entracte._errors import EntracteError
from entracte._follow import responses_of
from entracte._result_codec import follow_up_of
from entracte._results import FollowUp
from entracte._retry import Deadline
from entracte.v1 import run_service_pb2 as pb


async def late(
    connection: Connection, run_id: str, after: int, deadline: Deadline
) -> AsyncGenerator[FollowUp, None]:
    """The follow-ups of a run that has `after` chunks, each once it is settled, until all of them are. Waits
    until the run has ended. Raises EntracteError."""
    backoff = connection.backoff(deadline)
    told: set[tuple[str, str]] = set()
    while True:
        backoff.begin()
        request = pb.WatchRunRequest(
            run_id=run_id, after_sequence=after, until_finished=True, include_late=True
        )
        stream = connection.runs.WatchRun(
            request, timeout=deadline.remaining(), metadata=connection.metadata()
        )
        try:
            async with aclosing(responses_of(stream)) as responses:
                async for response in responses:
                    connection.answered()
                    backoff.answered()
                    if response.chunks:
                        after = response.chunks[-1].sequence
                        backoff.progress()
                    for job in map(follow_up_of, response.follow_ups):
                        if (job.kind, job.name) not in told:
                            told.add((job.kind, job.name))
                            yield job
            return
        except EntracteError as failure:
            if not backoff.may_try_again(failure):
                raise
            error = failure
        await backoff.pause(error)
