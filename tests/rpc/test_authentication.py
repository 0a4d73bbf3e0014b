"""Who calls: credentials, roles, where a server without credentials listens, and TLS."""

import shutil
import subprocess
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pydantic
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte.v1 import working_memory_pb2 as notes
from entracte_server import App
from entracte_server.app.running import running
from entracte_server.app.settings import Settings
from tests.rpc import support
from tests.rpc.support import METHODS, Peer, definition, generate, js, peer_of, ref, refused, serving, stream

Logs = list[MutableMapping[str, Any]]

KEYS: list[dict[str, Any]] = [
    {"key": "key-of-ada-0123", "principal": "ada"},
    {"key": "key-of-run-0123", "principal": "runner", "roles": ["run"]},
    {"key": "key-of-dec-0123", "principal": "decider", "roles": ["decide"]},
    {"key": "key-of-pen-0123", "principal": "author", "roles": ["author"]},
    {"key": "key-of-eye-0123", "principal": "reader", "roles": []},
]
ADA, RUN, DECIDE, AUTHOR, READ = (key["key"] for key in KEYS)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """A server that wants credentials."""
    async with serving(api_keys=KEYS) as (server, _):
        yield server.address


def _requests() -> dict[str, Any]:
    """A request for every RPC that is right but for its ids."""
    call = ref("no-such-call")
    made: dict[str, Any] = {
        "Generate": generate(),
        "Stream": stream(),
        "Resume": agents.ResumeRequest(call=call, resume_data=js("1")),
        "Approve": agents.ApproveRequest(call=call),
        "Decline": agents.DeclineRequest(call=call),
        "SubmitToolResult": agents.SubmitToolResultRequest(call=call, result=js("1")),
        "GetRun": runs.GetRunRequest(run_id="no-such-run"),
        "ListRuns": runs.ListRunsRequest(),
        "WatchRun": runs.WatchRunRequest(run_id="no-such-run"),
        "CancelRun": runs.CancelRunRequest(run_id="no-such-run"),
        "DeleteRun": runs.DeleteRunRequest(run_id="no-such-run"),
        "ListPendingCalls": inbox.ListPendingCallsRequest(),
        "GetPendingCall": inbox.GetPendingCallRequest(pending_call_id="no-such-call"),
        "WatchPendingCalls": inbox.WatchPendingCallsRequest(),
        "ClaimPendingCall": inbox.ClaimPendingCallRequest(pending_call_id="no-such-call"),
        "ReleasePendingCall": inbox.ReleasePendingCallRequest(pending_call_id="no-such-call"),
        "ListDecisions": inbox.ListDecisionsRequest(),
        "CreateThread": threads.CreateThreadRequest(resource_id="ada"),
        "GetThread": threads.GetThreadRequest(thread_id="no-such-thread"),
        "ListThreads": threads.ListThreadsRequest(),
        "UpdateThread": threads.UpdateThreadRequest(thread_id="no-such-thread", title="x"),
        "DeleteThread": threads.DeleteThreadRequest(thread_id="no-such-thread"),
        "ListThreadMessages": threads.ListThreadMessagesRequest(thread_id="no-such-thread"),
        "GetWorkingMemory": notes.GetWorkingMemoryRequest(thread_id="no-such-thread"),
        "ListAgents": catalog.ListAgentsRequest(),
        "GetAgent": catalog.GetAgentRequest(agent_id="no-such-agent"),
        "CreateAgentVersion": catalog.CreateAgentVersionRequest(agent_id="made", definition=definition()),
        "PublishAgentVersion": catalog.PublishAgentVersionRequest(agent_id="no-such-agent", version_id="v"),
        "ArchiveAgentVersion": catalog.ArchiveAgentVersionRequest(agent_id="no-such-agent", version_id="v"),
        "ListAgentVersions": catalog.ListAgentVersionsRequest(agent_id="no-such-agent"),
        "UpdateWorkingMemory": notes.UpdateWorkingMemoryRequest(thread_id="no-such-thread"),
    }
    assert set(made) == set(METHODS)
    return made


BAD_CREDENTIALS: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "empty": (("authorization", ""),),
    "no scheme": (("authorization", ADA),),
    "wrong scheme": (("authorization", f"Basic {ADA}"),),
    "no key": (("authorization", "Bearer"),),
    "blank key": (("authorization", "Bearer  "),),
    "wrong key": (("authorization", "Bearer key-of-eve-0123"),),
    "part of a key": (("authorization", f"Bearer {ADA[:-1]}"),),
    "more than a key": (("authorization", f"Bearer {ADA}x"),),
    "other case": (("authorization", f"Bearer {ADA.upper()}"),),
    "two in one": (("authorization", f"Bearer {ADA} {ADA}"),),
    "other header": (("x-api-key", ADA), ("authorisation", f"Bearer {ADA}")),
    "a principal's name": (("authorization", "Bearer ada"), ("principal", "ada")),
}


@pytest.mark.parametrize("name", BAD_CREDENTIALS)
async def test_no_rpc_without_a_valid_credential(address: str, name: str) -> None:
    """UNAUTHENTICATED, with the same words whatever is wrong, for every RPC, before the request is
    even looked at."""
    async with peer_of(address) as peer:
        peer.metadata = BAD_CREDENTIALS[name]
        texts = set()
        for method, request in _requests().items():
            for data in (request, b"\xff not a message"):
                refusal = await peer.refuse(method, data)
                assert (refusal.code, refusal.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED"), method
                assert refusal.metadata == {}
                texts.add(refusal.text)
        assert len(texts) == 1


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_valid_credential_names_the_principal(address: str, scheme: str) -> None:
    """The run and the decision are of the key's principal, whatever the request says."""
    async with peer_of(address) as peer:
        peer.metadata = (("authorization", f"{scheme} {ADA}"), ("principal", "eve"), ("tenant", "eve"))
        run_id, (pending,) = await peer.parked()
        assert (await peer.run(run_id)).principal == "ada"
        decided = await peer.one(
            "Approve",
            agents.ApproveRequest(call=ref(pending.pending_call_id), on_behalf_of="eve", wait=True),
        )
        assert (decided.decision.principal, decided.decision.on_behalf_of) == ("ada", "eve")
        assert decided.run.state == run_pb2.RUN_STATE_SUCCEEDED


NEEDS = {
    "Generate": "run",
    "Stream": "run",
    "CancelRun": "run",
    "DeleteRun": "run",
    "CreateThread": "run",
    "UpdateThread": "run",
    "DeleteThread": "run",
    "UpdateWorkingMemory": "run",
    "Resume": "decide",
    "Approve": "decide",
    "Decline": "decide",
    "SubmitToolResult": "decide",
    "ClaimPendingCall": "decide",
    "ReleasePendingCall": "decide",
    "CreateAgentVersion": "author",
    "PublishAgentVersion": "author",
    "ArchiveAgentVersion": "author",
}
"""The role that each RPC needs. The others read, which every principal of the tenant may."""


@pytest.mark.parametrize("method", METHODS)
async def test_each_rpc_needs_its_role_and_no_other(address: str, method: str) -> None:
    """PERMISSION_DENIED, ROLE_REQUIRED with the role; with the role the RPC goes on to what it does."""
    role = NEEDS.get(method)
    keys = {"run": RUN, "decide": DECIDE, "author": AUTHOR}
    for name, key in {**keys, "": READ}.items():
        async with peer_of(address, key) as peer:
            if role is not None and name != role:
                refusal = await peer.refuse(method, _requests()[method])
                assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "ROLE_REQUIRED")
                assert refusal.metadata == {"role": role}
            else:
                await _gets_through(peer, method)


async def _gets_through(peer: Peer, method: str) -> None:
    call = peer.open(method, _requests()[method])
    try:
        if METHODS[method].server_streaming:
            await call.read()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        refusal = error
    else:
        return
    assert support.parts_of(refusal).code == "NOT_FOUND"


async def test_any_principal_of_the_tenant_with_the_role_decides(address: str) -> None:
    """Who started a run is not asked when it is decided; the audit keeps who did what."""
    async with peer_of(address, RUN) as runner, peer_of(address, DECIDE) as decider:
        run_id, (pending,) = await runner.parked()
        response = await decider.approved(pending)
        assert response.run.principal == "runner"
        assert response.decision.principal == "decider"
        (resolved,) = [c for c in await runner.chunks(run_id) if c.HasField("tool_call_resolved")]
        assert resolved.tool_call_resolved.principal == "decider"


async def test_a_claim_keeps_other_principals_away(address: str) -> None:
    """PENDING_CALL_CLAIMED with who holds it and until when, for deciding and for claiming; the
    holder decides, and a release lets the others in again."""
    async with peer_of(address, ADA) as ada, peer_of(address, DECIDE) as decider:
        _, (pending,) = await ada.parked()
        claim = inbox.ClaimPendingCallRequest(pending_call_id=pending.pending_call_id)
        claimed = (await ada.one("ClaimPendingCall", claim)).pending_call.claim
        assert claimed.principal == "ada"
        for method, request in {
            "Approve": agents.ApproveRequest(call=ref(pending.pending_call_id)),
            "ClaimPendingCall": claim,
            "ReleasePendingCall": inbox.ReleasePendingCallRequest(pending_call_id=pending.pending_call_id),
        }.items():
            refusal = await decider.refuse(method, request)
            assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "PENDING_CALL_CLAIMED")
            assert refusal.metadata["pending_call_id"] == pending.pending_call_id
            assert refusal.metadata["principal"] == "ada"
            assert int(refusal.metadata["expire_time"]) == claimed.expire_time.ToMilliseconds()
        release = inbox.ReleasePendingCallRequest(pending_call_id=pending.pending_call_id)
        released = await ada.one("ReleasePendingCall", release)
        assert not released.pending_call.HasField("claim")
        assert (await decider.approved(pending)).decision.principal == "decider"


async def test_health_and_reflection_need_no_credential(address: str) -> None:
    """Load balancers and tools ask without one."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_log_has_no_credential(address: str, logs: Logs) -> None:
    """Neither a key that is right nor one that is wrong is written down."""
    async with peer_of(address, ADA) as peer:
        await peer.one("Generate", generate())
        peer.metadata = (("authorization", "Bearer key-of-eve-0123"),)
        await peer.refuse("Generate", generate())
    assert [log["code"] for log in logs if log["event"] == "rpc"] == ["OK", "UNAUTHENTICATED"]
    assert ADA not in repr(logs)
    assert "key-of-eve-0123" not in repr(logs)


# ---- without credentials ----


async def test_without_keys_everybody_is_local() -> None:
    """One principal, whatever is sent as a credential."""
    async with serving() as (_, peer):
        for metadata in ((), (("authorization", "Bearer anything"),)):
            peer.metadata = metadata
            response = await peer.one("Generate", generate())
            assert response.run.principal == "local"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.org", "", "127.0.0.1.example.org"])
def test_without_keys_only_the_loopback_is_served(host: str) -> None:
    """The settings refuse any other address."""
    with pytest.raises(pydantic.ValidationError, match="loopback"):
        Settings(address=f"{host}:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_the_loopback_is_taken_without_keys(host: str) -> None:
    """And any address with keys."""
    assert Settings(address=f"{host}:0").address == f"{host}:0"
    keys: Any = KEYS
    assert Settings(address="0.0.0.0:0", api_keys=keys).address == "0.0.0.0:0"


@pytest.mark.parametrize(
    "key",
    [
        {"key": "short", "principal": "a"},
        {"key": "long enough", "principal": ""},
        {"key": "long enough", "principal": "a", "tenant": ""},
        {"key": "long enough", "principal": "a", "roles": ["admin"]},
        {"key": "long enough"},
        {"principal": "a"},
        {"key": "long enough", "principal": "a", "role": "run"},
    ],
)
def test_keys_that_are_not_complete_are_refused(key: Any) -> None:
    """At the start, not at the first RPC."""
    with pytest.raises(pydantic.ValidationError):
        Settings(api_keys=[key])


def test_one_key_for_two_principals_is_refused() -> None:
    """It would be left to chance who a caller is."""
    keys: Any = [{"key": "the same key", "principal": "a"}, {"key": "the same key", "principal": "b"}]
    with pytest.raises(pydantic.ValidationError, match="key"):
        Settings(api_keys=keys)


def test_settings_do_not_show_keys() -> None:
    """Neither their text form nor an error has a key in it."""
    keys: Any = KEYS
    assert ADA not in repr(Settings(api_keys=keys))
    assert ADA not in str(Settings(api_keys=keys).model_dump())
    bad: Any = [{"key": ADA, "principal": "a", "roles": ["admin"]}]
    with pytest.raises(pydantic.ValidationError) as caught:
        Settings(api_keys=bad)
    assert ADA not in str(caught.value.errors(include_input=False))


# ---- TLS ----

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the certificate is made with openssl, which is not installed"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key, as files."""
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "chain.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(chain)),
        ],
        check=True,
        capture_output=True,
    )
    return chain, key


@needs_openssl
async def test_tls_by_certificate_files(certificate: tuple[Path, Path]) -> None:
    """A client that trusts the certificate is served; one without TLS, or that trusts others, is not."""
    chain, key = certificate
    async with serving(tls_certificate=chain, tls_key=key, api_keys=KEYS, key=ADA) as (server, plain):
        address = f"localhost:{server.address.rpartition(':')[2]}"
        credentials = grpc.ssl_channel_credentials(chain.read_bytes())
        async with grpc.aio.secure_channel(address, credentials) as channel:
            peer = Peer(channel, ADA)
            assert (await peer.one("Generate", generate())).run.principal == "ada"
            peer.metadata = ()
            assert (await peer.refuse("Generate", generate())).code == "UNAUTHENTICATED"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await plain.call("Generate", generate(), timeout=5)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        strangers = grpc.ssl_channel_credentials()
        async with grpc.aio.secure_channel(address, strangers) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await Peer(channel, ADA).call("Generate", generate(), timeout=5)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@needs_openssl
async def test_half_of_tls_is_refused(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    """A certificate without its key, a file that is not there, and one that is no certificate."""
    chain, key = certificate
    with pytest.raises(pydantic.ValidationError, match="go together"):
        Settings(tls_certificate=chain)
    with pytest.raises(pydantic.ValidationError, match="go together"):
        Settings(tls_key=key)
    with pytest.raises(OSError, match="missing"):
        Settings(tls_certificate=tmp_path / "missing.pem", tls_key=key).server()
    (tmp_path / "wrong.pem").write_text("not a certificate")
    values = Settings(
        address="127.0.0.1:0",
        store=f"sqlite:///{tmp_path}/x.db",
        tls_certificate=tmp_path / "wrong.pem",
        tls_key=key,
    )
    with pytest.raises((RuntimeError, ValueError)):
        async with running(App(agents=support.agents()), values):
            pytest.fail("it serves")


async def test_a_request_id_of_the_caller_is_used_if_it_is_sane(logs: Logs) -> None:
    """`x-request-id` goes into the log as it is; one that would bloat the log does not."""
    given = ["good-id_1", "x" * 129, ""]
    async with serving() as (_, peer):
        for value in given:
            peer.metadata = (("x-request-id", value),)
            await refused(peer.call("GetRun", runs.GetRunRequest(run_id="nobody")))
    ids = [log["request_id"] for log in logs if log["event"] == "rpc"]
    assert ids[0] == "good-id_1"
    assert not set(ids) & set(given[1:])
    assert all(ids)
