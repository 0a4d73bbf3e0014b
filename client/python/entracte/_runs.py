"""Runs: looking at them, following them, ending them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Unpack

from entracte._callbacks import Callbacks, callbacks_in
from entracte._client_tools import ClientToolLike, client_tools_from
from entracte._connection import Connection
from entracte._enums import RUN_STATES, RunState, number_of
from entracte._follow import Follower
from entracte._ids import new_id
from entracte._late import late
from entracte._options import CallOptions
from entracte._options_codec import check_names
from entracte._paging import all_items
from entracte._result_codec import run_of
from entracte._results import FollowUp, Page, Run
from entracte._retry import Deadline
from entracte._stream import Beginning, RunStream
from entracte.v1 import run_service_pb2 as pb


class RunFilter(CallOptions, total=False):
    """Which runs are listed; what is absent does not filter."""

    states: Sequence[RunState]
    """Only runs in one of these states."""
    agent_id: str
    """Only runs of this agent."""
    thread_id: str
    """Only runs on this thread."""
    include_children: bool
    """Whether runs of sub-agents are listed too."""
    page_size: int
    """How many runs one request asks for, 1 to 1000. Default 50."""


class WatchOptions(Callbacks, CallOptions, total=False):
    """How a run is watched."""

    until_finished: bool
    """Whether to wait through suspensions until the run has ended."""
    client_tools: Sequence[ClientToolLike] | None
    """Functions for the run's client tools, executed when it parks for them."""


class RunsClient:
    """The runs of a server: `client.runs`. All methods raise EntracteError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(self, run_id: str, *, omit_result: bool = False, **call: Unpack[CallOptions]) -> Run:
        """Reads a run with its `result`: final for one that has ended, else what there is so far.

        Raises RunNotFound, and ResultTooLarge for a result beyond 16 MiB: read the run with
        `omit_result` and its chunks with `watch`.
        """
        request = pb.GetRunRequest(run_id=run_id, omit_result=omit_result)
        response = await self._connection.call(
            self._connection.runs.GetRun, request, within=call.get("timeout", self._connection.timeout)
        )
        return run_of(response.run, response.result if response.HasField("result") else None)

    def list(self, **filters: Unpack[RunFilter]) -> AsyncGenerator[Run, None]:
        """All runs that fit, newest first, without their results; asks for page after page."""

        async def page_after(token: str) -> Page[Run]:
            return await self.list_page(token, **filters)

        return all_items(page_after)

    async def list_page(self, page_token: str = "", **filters: Unpack[RunFilter]) -> Page[Run]:
        """One page of `list`: the first, or the one that a `next_page_token` names.

        Raises PageTokenInvalid for a token of another list or of other filters.
        """
        check_names(filters, RunFilter.__annotations__, "list")
        states = [number_of(RUN_STATES, state, "a run's state") for state in filters.get("states", ())]
        request = pb.ListRunsRequest(
            page_size=filters.get("page_size", 0),
            page_token=page_token,
            states=states,
            agent_id=filters.get("agent_id", ""),
            thread_id=filters.get("thread_id", ""),
            include_children=filters.get("include_children", False),
        )
        response = await self._connection.call(
            self._connection.runs.ListRuns, request, within=filters.get("timeout", self._connection.timeout)
        )
        return Page(tuple(run_of(run) for run in response.runs), response.next_page_token)

    def watch(self, run_id: str, after: int = 0, **options: Unpack[WatchOptions]) -> RunStream:
        """Follows a run from any position: what is stored after chunk `after`, then what happens.

        Ends where the run is parked or has ended. Raises RunNotFound, SequenceTrimmed and
        SequenceAhead from the iteration.
        """
        check_names(options, WatchOptions.__annotations__, "watch")
        connection = self._connection

        async def begin() -> Beginning:
            follower = Follower(
                connection,
                Deadline(options.get("timeout")),
                run_id=run_id,
                position=after,
                until_finished=options.get("until_finished", False),
                may_be_at_rest=after > 0,
            )
            return Beginning(follower)

        return RunStream(
            connection,
            begin,
            run_id=run_id,
            callbacks=callbacks_in(options),
            client_tools=client_tools_from(options.get("client_tools")),
        )

    async def follow_ups(
        self, run_id: str, *, wait: bool = True, **call: Unpack[CallOptions]
    ) -> tuple[FollowUp, ...]:
        """What is done about a run after its end, its scores and the title of its thread for example.

        Waits until the run has ended and all of it is settled; that may take minutes, so give a
        `timeout`. Without `wait`, as it stands now. Raises RunNotFound.
        """
        if wait:
            run = await self.get(run_id, omit_result=True, **call)
            deadline = Deadline(call.get("timeout"))
            async with aclosing(late(self._connection, run_id, run.last_sequence, deadline)) as settled:
                async for _ in settled:
                    pass
        return (await self.get(run_id, omit_result=True, **call)).follow_ups

    async def cancel(
        self,
        run_id: str,
        *,
        reason: str = "",
        wait: bool = False,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> Run:
        """Cancels a run, whatever it is doing: model calls and tools are cut off, waiting calls are
        settled as cancelled. With `wait` the run that is returned has ended. One that had ended
        before stays as it is. Raises RunNotFound."""
        request = pb.CancelRunRequest(
            run_id=run_id, reason=reason, wait=wait, request_id=request_id or new_id()
        )
        within = call.get("timeout", None if wait else self._connection.timeout)
        response = await self._connection.call(self._connection.runs.CancelRun, request, within=within)
        return run_of(response.run)

    async def delete(
        self,
        run_id: str,
        *,
        force: bool = False,
        request_id: str | None = None,
        **call: Unpack[CallOptions],
    ) -> None:
        """Deletes all that is stored of a run that has ended, or of a parked one with `force`.

        Raises RunNotFound and RunNotFinished.
        """
        request = pb.DeleteRunRequest(run_id=run_id, force=force, request_id=request_id or new_id())
        within = call.get("timeout", self._connection.timeout)
        await self._connection.call(self._connection.runs.DeleteRun, request, within=within)
