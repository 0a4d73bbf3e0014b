"""What every RPC of ours goes through, outermost first: request id and log, error mapping, principal,
limits, deadline, the caller's span. Our handlers are coroutines throughout (streams write to their
context), so one form of wrapper fits all. They are wrapped once, when they are registered: `grpc.aio`
interceptors do the same at every call, and make five handlers for it.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import grpc.aio
import structlog

from entracte_server.domain.errors import Refusal
from entracte_server.domain.ids import new_id
from entracte_server.rpc import status
from entracte_server.rpc.call import LOCAL, Behavior, Call, Context, Principal, current
from entracte_server.store.base import LeaseLost, NotFound, RequestReused, RunExists, StoreUnavailable
from entracte_server.telemetry.base import Telemetry

_log = structlog.get_logger("entracte.rpc")


class Middleware:
    """Wraps each of our handlers with `around`."""

    def wrap(self, behavior: Behavior, method: str) -> Behavior:
        """`behavior` with `around` around it; `method` is the full name of the RPC."""

        async def wrapped(request: Any, context: Context) -> Any:
            return await self.around(behavior, request, context, method)

        return wrapped

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """Handle the RPC."""
        raise NotImplementedError


class RequestLog(Middleware):
    """Gives each RPC a request id (the caller's `x-request-id`, if it is sane) and logs its end."""

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """See `Middleware`."""
        metadata = context.invocation_metadata() or ()
        given = next((value for key, value in metadata if key == "x-request-id"), "")
        request_id = given if isinstance(given, str) and given.isprintable() and 0 < len(given) <= 128 else ""
        call = Call(method, request_id or new_id())
        token = current.set(call)
        started = time.perf_counter()
        outcome = "OK"
        try:
            return await behavior(request, context)
        except asyncio.CancelledError:
            outcome = "CANCELLED"
            raise
        except grpc.aio.AbortError:
            code = context.code()
            outcome = getattr(code, "name", str(code))
            raise
        finally:
            current.reset(token)
            _log.info(
                "rpc",
                method=call.method,
                code=outcome,
                ms=round((time.perf_counter() - started) * 1000, 1),
                request_id=call.request_id,
                tenant=call.principal.tenant,
                principal=call.principal.name,
                run_id=call.run_id,
            )


class Errors(Middleware):
    """Turns refusals into statuses, and anything unforeseen into INTERNAL with a request id: what it
    was stands in the log only."""

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """See `Middleware`."""
        try:
            return await behavior(request, context)
        except grpc.aio.AbortError:
            raise
        except Refusal as refusal:
            await status.abort(context, refusal)
        except (NotFound, RunExists, RequestReused, StoreUnavailable, LeaseLost) as error:
            await status.abort(context, status.refusal_of(error, current.get().run_id))
        except grpc.aio.InternalError:
            # The client went away while something was written to it.
            raise asyncio.CancelledError from None
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an author's validator may raise anything; SystemExit would end the server
            request_id = current.get().request_id
            _log.exception("rpc_failed", method=method, request_id=request_id)
            await status.abort(
                context,
                Refusal("INTERNAL", f"The server failed; request {request_id}.", request_id=request_id),
            )


class Authentication(Middleware):
    """Finds the principal of an RPC by its API key (`authorization: Bearer KEY`). Without keys
    everybody is `local`."""

    def __init__(self, keys: Mapping[str, Principal]) -> None:
        self._keys = {hashlib.sha256(key.encode()).digest(): who for key, who in keys.items()}

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """See `Middleware`."""
        current.get().principal = (
            self._principal(context.invocation_metadata() or ()) if self._keys else LOCAL
        )
        return await behavior(request, context)

    def _principal(self, metadata: Any) -> Principal:
        for key, value in metadata:
            if key == "authorization" and isinstance(value, str):
                scheme, _, credential = value.partition(" ")
                digest = hashlib.sha256(credential.strip().encode()).digest()
                principal = self._keys.get(digest)
                if scheme.lower() == "bearer" and principal is not None:
                    return principal
        raise Refusal("UNAUTHENTICATED", "Send a valid API key as `authorization: Bearer KEY`.")


class Limits(Middleware):
    """Bounds what one principal may have open: streams, and RPCs that wait."""

    def __init__(self, streams_per_principal: int) -> None:
        self._limit = streams_per_principal
        self._open: Counter[tuple[str, str]] = Counter()

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """See `Middleware`."""
        principal = current.get().principal
        key = (principal.tenant, principal.name)
        if self._open[key] >= self._limit:
            raise Refusal(
                "TOO_MANY_STREAMS",
                f"{self._limit} RPCs of this principal are open already.",
                retry_after=1.0,
                limit=str(self._limit),
            )
        self._open[key] += 1
        try:
            return await behavior(request, context)
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


class Deadline(Middleware):
    """Bounds unary RPCs whose caller set no deadline. The bound is on the wait: what was started
    goes on. Streams have none."""

    def __init__(self, quick: float, waiting: float, waits: frozenset[str], streams: frozenset[str]) -> None:
        self._quick = quick
        self._waiting = waiting
        self._waits = waits
        self._streams = streams

    def wrap(self, behavior: Behavior, method: str) -> Behavior:
        """See `Middleware`."""
        return behavior if method.rpartition("/")[2] in self._streams else super().wrap(behavior, method)

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """See `Middleware`."""
        waits = method.rpartition("/")[2] in self._waits or getattr(request, "wait", False)
        limit = self._waiting if waits else self._quick
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await behavior(request, context)
        except TimeoutError:
            if not scope.expired():
                raise
            raise Refusal(
                "WAIT_TOO_LONG",
                "The server's limit for this RPC passed; repeat it with the same request_id.",
            ) from None


class CallerSpan(Middleware):
    """Notes the caller's span; only for a server that traces."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def around(self, behavior: Behavior, request: Any, context: Context, method: str) -> Any:
        """See `Middleware`."""
        self._telemetry.caller(context.invocation_metadata() or ())
        return await behavior(request, context)
