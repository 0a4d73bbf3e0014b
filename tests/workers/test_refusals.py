"""Who may work for whom, and what is refused of a worker."""

import asyncio
from typing import Any

import grpc.aio
import pytest

from entracte import Client, RoleRequired, Worker, WorkerToolUnknown, worker_tool
from entracte._status import error_of
from entracte.v1 import worker_service_pb2 as pb
from tests.workers.support import Puller, app, calls, echo, pulling, reason_of, serving

KEYS: list[Any] = [
    {"key": "key-of-ada-0123", "principal": "ada", "tenant": "one"},
    {"key": "key-of-bob-0123", "principal": "bob", "tenant": "one", "roles": ["worker"]},
    {"key": "key-of-eve-0123", "principal": "eve", "tenant": "two"},
    {"key": "key-of-run-0123", "principal": "runner", "tenant": "one", "roles": ["run", "decide"]},
]


async def test_whose_work_it_is(store: str) -> None:
    """Registering needs the role; tools are the tenant's, work is the principal's that pulled it. A stranger
    is told that there is no such work, whether there is or not."""
    async with serving(app(calls("w__echo", {"n": 1})), store, api_keys=KEYS) as (server, _):
        clients = {key["principal"]: Client(server.address, api_key=key["key"]) for key in KEYS}
        try:
            bob, eve, runner = clients["bob"], clients["eve"], clients["runner"]
            with pytest.raises(RoleRequired):
                await Worker(runner, tools=[tool()]).run(handle_signals=False)
            async with pulling(bob) as puller:
                with pytest.raises(WorkerToolUnknown):
                    await eve.agent("a").generate("go")
                theirs = Puller(eve, "s", [echo()], 10)
                await theirs.registered()
                run = asyncio.create_task(runner.agent("a").generate("go", run_id="r"))
                item = await puller.item()
                for other in (theirs, Puller(clients["ada"], "x", [echo()], 0)):
                    assert await reason_of(other.complete(item)) == "WORK_NOT_FOUND"
                    assert await reason_of(other.extend(item)) == "WORK_NOT_FOUND"
                    assert await reason_of(other.abandon(item)) == "WORK_NOT_FOUND"
                    other.close()
                request = pb.CompleteWorkRequest(work_id=item.work_id, token=item.token)
                request.result.text = "1"
                metadata = runner._connection.metadata()
                assert (
                    await reason_of(puller.stubs.CompleteWork(request, metadata=metadata)) == "ROLE_REQUIRED"
                )
                await puller.complete(item)
                assert (await run).text == "end"
        finally:
            for client in clients.values():
                await client.aclose()


def tool() -> Any:
    """A tool."""

    @worker_tool("w/echo")
    async def body() -> None:
        """Nothing."""

    return body


def bad_requests() -> dict[str, Any]:
    """Requests that are wrong, by the field that the refusal names."""

    def pull(**fields: Any) -> pb.PullWorkRequest:
        return pb.PullWorkRequest(**{"session_id": "s", "tools": [echo()], "credit": 1, **fields})

    def with_tool(**fields: Any) -> pb.PullWorkRequest:
        changed = echo()
        for name, value in fields.items():
            if name.endswith("_schema"):
                getattr(changed, name).text = value
            else:
                setattr(changed, name, value)
        return pull(tools=[changed])

    bare = echo()
    bare.ClearField("input_schema")
    timed = echo()
    timed.timeout.seconds = 0
    suspended = pb.CompleteWorkRequest(work_id="r/w", token="t")
    suspended.suspended.state.text = "[]"
    result = pb.CompleteWorkRequest(work_id="r/w", token="t")
    result.result.text = "{"
    numbers = pb.ExtendWorkRequest(work_id="r/w", token="t", output=[pb.WorkOutput(number=0)])
    return {
        "session_id": pull(session_id=""),
        "session_id ": pull(session_id="a b"),
        "credit": pull(credit=1001),
        "credit ": pull(credit=-1),
        "tools": pull(tools=[]),
        "tools[0].name": with_tool(name="plain"),
        "tools[0].name ": with_tool(name="a__b/c"),
        "tools[0].version": with_tool(version=""),
        "tools[0].description": with_tool(description="x" * 8193),
        "tools[0].concurrency": with_tool(concurrency=-1),
        "tools[0].input_schema": pull(tools=[bare]),
        "tools[0].input_schema.text": with_tool(input_schema='{"type":"array"}'),
        "tools[0].input_schema.text ": with_tool(input_schema="{"),
        "tools[0].resume_schema.text": with_tool(resume_schema='{"type":7}'),
        "tools[0].timeout": pull(tools=[timed]),
        "tools[1].name": pull(tools=[echo(), echo()]),
        "outcome": pb.CompleteWorkRequest(work_id="r/w", token="t"),
        "result.text": result,
        "suspended.state.text": suspended,
        "work_id": pb.AbandonWorkRequest(token="t"),
        "token": pb.AbandonWorkRequest(work_id="r/w"),
        "output[0].number": numbers,
    }


async def test_bad_requests_name_the_field(tmp_path: Any) -> None:
    """INVALID_ARGUMENT, and nothing is registered."""
    async with serving(app(calls("w__echo", {"n": 1})), str(tmp_path / "db")) as (server, client):
        stubs = client._connection.workers
        for field, request in bad_requests().items():
            violation = await _violation(stubs, request)
            assert violation == field.strip(), field
        assert await server.store.worker_tools("local", "w/echo") is None


async def _violation(stubs: Any, request: Any) -> str:
    try:
        if isinstance(request, pb.PullWorkRequest):
            stream = stubs.PullWork(request)
            await stream.read()
            stream.cancel()
        elif isinstance(request, pb.CompleteWorkRequest):
            await stubs.CompleteWork(request)
        elif isinstance(request, pb.ExtendWorkRequest):
            await stubs.ExtendWork(request)
        else:
            await stubs.AbandonWork(request)
    except grpc.aio.AioRpcError as failure:
        error = error_of(failure)
        assert error.code == "INVALID_ARGUMENT", error
        return error.violations[0].field
    return "nothing"


async def test_a_newer_stream_of_a_session(tmp_path: Any) -> None:
    """It ends the older one, and is sent what that was given; credit and concurrency bound what a session
    has, and sessions share."""
    it = app(calls("w__echo", *({"n": n} for n in range(6))))
    async with (
        serving(it, str(tmp_path / "db")) as (_, client),
        pulling(client, echo(concurrency=2)) as old,
    ):
        run = asyncio.create_task(client.agent("a").generate("go"))
        first = {(await old.item()).token for _ in range(2)}
        async with pulling(client, echo(concurrency=2), credit=3) as new:
            assert await reason_of(old.event()) == "WORKER_SESSION_REPLACED"
            items = [await new.item() for _ in range(2)]
            assert {item.token for item in items} == first
            async with pulling(client, session="other", credit=3) as other:
                theirs = [await other.item() for _ in range(3)]
                for item in items:
                    await new.complete(item)
                last = await new.item()
                for item in (*theirs, last):
                    await other.complete(item)
                assert [r.result["n"] for r in (await run).tool_results] == list(range(6))
