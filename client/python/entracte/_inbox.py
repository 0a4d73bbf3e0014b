"""The inbox: what waits for people, and what people decided."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Unpack

from entracte._connection import Connection
from entracte._decisions import CallLike
from entracte._errors import EntracteError, StreamBroken
from entracte._follow import responses_of
from entracte._ids import new_id
from entracte._options import CallOptions, Seconds
from entracte._options_codec import check_names, to_duration
from entracte._paging import all_items
from entracte._result_codec import decision_of, pending_call_of
from entracte._results import Decision, InboxChange, Page, PendingCall
from entracte._retry import Deadline
from entracte.v1 import inbox_service_pb2 as pb


class InboxFilter(CallOptions, total=False):
    """Which pending calls are listed; what is absent does not filter."""

    run_id: str
    """Only calls of this run."""
    agent_id: str
    """Only calls of this agent's runs."""
    thread_id: str
    """Only calls of runs on this thread."""
    resource_id: str
    """Only calls of runs that use this resource's memory."""
    include_decided: bool
    """Whether decided calls are listed too."""
    page_size: int
    """How many calls one request asks for, 1 to 1000. Default 50."""


class DecisionFilter(CallOptions, total=False):
    """Which decisions are listed; what is absent does not filter."""

    run_id: str
    """Only decisions on this run."""
    pending_call_id: str
    """Only the decision on this call."""
    principal: str
    """Only decisions of this principal."""
    page_size: int
    """How many decisions one request asks for, 1 to 1000. Default 50."""


class InboxWatchOptions(CallOptions, total=False):
    """Which open calls are watched; what is absent does not filter."""

    run_id: str
    """Only calls of this run."""
    agent_id: str
    """Only calls of this agent's runs."""
    resource_id: str
    """Only calls of runs that use this resource's memory."""


class InboxClient:
    """What waits for people: `client.inbox`. All methods raise EntracteError.

    Decide with `client.agent(call.agent_id).approve(call)` and its siblings.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, **filters: Unpack[InboxFilter]) -> AsyncGenerator[PendingCall, None]:
        """All pending calls that fit, oldest first; asks for page after page."""

        async def page_after(token: str) -> Page[PendingCall]:
            return await self.list_page(token, **filters)

        return all_items(page_after)

    async def list_page(self, page_token: str = "", **filters: Unpack[InboxFilter]) -> Page[PendingCall]:
        """One page of `list`. Raises PageTokenInvalid."""
        check_names(filters, InboxFilter.__annotations__, "list")
        request = pb.ListPendingCallsRequest(
            page_size=filters.get("page_size", 0),
            page_token=page_token,
            run_id=filters.get("run_id", ""),
            agent_id=filters.get("agent_id", ""),
            thread_id=filters.get("thread_id", ""),
            resource_id=filters.get("resource_id", ""),
            include_decided=filters.get("include_decided", False),
        )
        within = filters.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.inbox.ListPendingCalls, request, within=within
        )
        return Page(tuple(map(pending_call_of, response.pending_calls)), response.next_page_token)

    async def get(self, pending_call_id: str, **call: Unpack[CallOptions]) -> PendingCall:
        """Reads a pending call, decided or not. Raises PendingCallNotFound."""
        request = pb.GetPendingCallRequest(pending_call_id=pending_call_id)
        within = call.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.inbox.GetPendingCall, request, within=within)
        return pending_call_of(response.pending_call)

    async def watch(self, **options: Unpack[InboxWatchOptions]) -> AsyncGenerator[InboxChange, None]:
        """The open calls, then every change, without end.

        A broken connection is made good: after it only what changed meanwhile is told. Raises
        DeadlineExceeded after the `timeout`, Unavailable when no server is reached for too long.
        """
        check_names(options, InboxWatchOptions.__annotations__, "watch")
        connection = self._connection
        request = pb.WatchPendingCallsRequest(
            run_id=options.get("run_id", ""),
            agent_id=options.get("agent_id", ""),
            resource_id=options.get("resource_id", ""),
        )
        deadline = Deadline(options.get("timeout"))
        backoff = connection.backoff(deadline)
        view = _View()
        while True:
            error: EntracteError
            view.start_over()
            backoff.begin()
            opened = connection.inbox.WatchPendingCalls(
                request, timeout=deadline.remaining(), metadata=connection.metadata()
            )
            try:
                async with aclosing(responses_of(opened)) as responses:
                    async for response in responses:
                        connection.answered()
                        backoff.answered()
                        change = view.change(response)
                        if change is not None:
                            backoff.progress()
                            yield change
                error = StreamBroken("the server ended a watch that has no end")
            except EntracteError as failure:
                if not backoff.may_try_again(failure):
                    raise
                error = failure
            await backoff.pause(error)

    async def claim(
        self,
        call: CallLike,
        *,
        ttl: Seconds | None = None,
        request_id: str | None = None,
        **options: Unpack[CallOptions],
    ) -> PendingCall:
        """Keeps others from deciding a call for a while: `ttl`, 1 s to 1 day, default 5 minutes.
        Claiming one's own claim again extends it. Raises PendingCallClaimed for another's."""
        request = pb.ClaimPendingCallRequest(
            pending_call_id=_id_of(call),
            ttl=None if ttl is None else to_duration(ttl),
            request_id=request_id or new_id(),
        )
        within = options.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.inbox.ClaimPendingCall, request, within=within
        )
        return pending_call_of(response.pending_call)

    async def release(
        self, call: CallLike, *, request_id: str | None = None, **options: Unpack[CallOptions]
    ) -> PendingCall:
        """Gives a claim back. Raises PendingCallClaimed for another's."""
        request = pb.ReleasePendingCallRequest(
            pending_call_id=_id_of(call), request_id=request_id or new_id()
        )
        within = options.get("timeout", self._connection.timeout)
        response = await self._connection.call(
            self._connection.inbox.ReleasePendingCall, request, within=within
        )
        return pending_call_of(response.pending_call)

    def decisions(self, **filters: Unpack[DecisionFilter]) -> AsyncGenerator[Decision, None]:
        """All decisions that fit, newest first; asks for page after page."""

        async def page_after(token: str) -> Page[Decision]:
            return await self.decisions_page(token, **filters)

        return all_items(page_after)

    async def decisions_page(self, page_token: str = "", **filters: Unpack[DecisionFilter]) -> Page[Decision]:
        """One page of `decisions`. Raises PageTokenInvalid."""
        check_names(filters, DecisionFilter.__annotations__, "decisions")
        request = pb.ListDecisionsRequest(
            page_size=filters.get("page_size", 0),
            page_token=page_token,
            run_id=filters.get("run_id", ""),
            pending_call_id=filters.get("pending_call_id", ""),
            principal=filters.get("principal", ""),
        )
        within = filters.get("timeout", self._connection.timeout)
        response = await self._connection.call(self._connection.inbox.ListDecisions, request, within=within)
        return Page(tuple(map(decision_of, response.decisions)), response.next_page_token)


def _id_of(call: CallLike) -> str:
    return call if isinstance(call, str) else call.pending_call_id


class _View:
    """The open calls as the caller knows them, over any number of connections."""

    def __init__(self) -> None:
        self._known: dict[str, PendingCall] = {}
        self._seen: set[str] = set()
        self._told = False
        self._in_snapshot = True

    def start_over(self) -> None:
        """A new connection begins with a snapshot."""
        self._seen = set()
        self._in_snapshot = True

    def change(self, message: pb.WatchPendingCallsResponse) -> InboxChange | None:
        """What is new to the caller; None if nothing is."""
        calls = [pending_call_of(call) for call in message.opened]
        opened = [call for call in calls if self._known.get(call.pending_call_id) != call]
        closed = [item for item in message.closed_pending_call_ids if item in self._known]
        self._known.update((call.pending_call_id, call) for call in calls)
        first = False
        if self._in_snapshot:
            self._seen.update(call.pending_call_id for call in calls)
        if message.snapshot_complete:
            # What was open before and is not in the snapshot was closed in between.
            closed += [item for item in self._known if item not in self._seen and item not in closed]
            first, self._told = not self._told, True
            self._in_snapshot = False
        for item in closed:
            del self._known[item]
        if not opened and not closed and not first:
            return None
        return InboxChange(tuple(opened), tuple(closed), first)
