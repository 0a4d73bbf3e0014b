"""The examples of the README are code that runs."""

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import grpc
import pytest

import entracte
from entracte import Client
from entracte.v1 import inbox_service_pb2
from tests.client.fake import FakeServer, Log, Refuse

README = Path(__file__).parents[2] / "client" / "python" / "README.md"
BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```", README.read_text())


@pytest.mark.parametrize("source", BLOCKS, ids=lambda source: source.strip().splitlines()[0][:40])
async def test_an_example_runs(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names that the text before it has introduced."""

    async def watch(_: Any, context: Any) -> None:
        await context.write(inbox_service_pb2.WatchPendingCallsResponse(snapshot_complete=True))
        await Refuse(grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED").do(context)

    monkeypatch.chdir(tmp_path)
    receipt = tmp_path / "receipt.png"
    receipt.write_bytes(b"\x89PNG\r\n\x1a\n")
    code = compile(source, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if "asyncio.run(main())" in source or "SyncClient" in source:
        return  # the same as the others, with a client of its own
    log = Log().add("start").text(*["word "] * 50).finish()
    async with FakeServer(log).running() as server, Client(server.address) as client:
        server.handlers["WatchPendingCalls"] = watch
        names: dict[str, Any] = {"agent": client.agent("support"), "client": client}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(entracte.RoleRequired):
            outcome = eval(code, names)
            if outcome is not None:
                await outcome
        assert server.calls or "await" not in source


def test_there_are_examples() -> None:
    assert len(BLOCKS) > 8
