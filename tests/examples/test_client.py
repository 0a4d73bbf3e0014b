"""The small client in `examples/client/python`, with the agent it is for. Those in other languages are run by
the tests of their SDKs."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from entracte_server.testing import serve
from tests.sdk_server import app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "client" / "python" / "support.py"


async def talk(*arguments: str) -> tuple[int | None, str]:
    """Its exit code, and what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        *arguments,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(60):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()


async def test_a_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with serve(app()) as server:
        code, said = await talk(server.address, "My kettle arrived broken, I want my money back")
    assert code == 0, said
    for line in ("Which order is it about? (7, 8, 9) 7", "May it call refund with {", "(stop, "):
        assert line in said
    assert said.index("Done: 129.00 are on their way to you.") > said.index("May it call refund")


async def test_nobody_serves() -> None:
    code, said = await talk("127.0.0.1:1")
    assert code == 3, said
    assert said.splitlines()[-1].startswith("No server answers at 127.0.0.1:1.")
