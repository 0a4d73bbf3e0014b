"""Plays recorded provider traffic through a real server: provider, model adapter, loop, store, SDK.

A folder of recordings holds `replay_server.py` and JSON files, one per recorded answer or several
under `exchanges`, each with what a careful reader makes of it (`expect`). For every answer a run is
made and streamed by the SDK, read again with `WatchRun`, and compared.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entracte import Chunk, Client, GenerateResult
from examples.server_process import ROOT, ServerProcess

AT_ONCE = 8
RUN_TIMEOUT = 60.0


@dataclass(frozen=True)
class RecordedAnswer:
    """One answer of a provider."""

    recording: str
    exchange: int
    status: int
    expect: dict[str, Any]

    @property
    def agent_id(self) -> str:
        return f"recording-{self.recording}-{self.exchange}"

    @property
    def model(self) -> str:
        """The replay server picks the answer by the model's name."""
        return f"replay/{self.recording};exchange={self.exchange}"


def find_recordings() -> Path | None:
    """The folder that `ENTRACTE_RECORDINGS` names, or the one beside the repository; None without."""
    named = os.environ.get("ENTRACTE_RECORDINGS")
    folder = Path(named) if named else ROOT.parent / "shared" / "recordings"
    if (folder / "replay_server.py").is_file():
        return folder
    if named:
        raise SystemExit(f"ENTRACTE_RECORDINGS={named}: there is no replay_server.py")
    return None


def recorded_answers(folder: Path) -> Iterator[RecordedAnswer]:
    """All answers, in order."""
    for path in sorted(folder.glob("[0-9]*.json")):
        record = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        for index, one in enumerate(record.get("exchanges") or [record]):
            yield RecordedAnswer(path.name.partition("-")[0], index, one["status"], one["expect"])


def differences(answer: RecordedAnswer, chunks: list[Chunk], result: GenerateResult) -> list[str]:
    """What is not as expected, in words."""
    expect = answer.expect
    found: list[str] = []

    def same(what: str, got: object, wanted: object) -> None:
        if got != wanted:
            found.append(f"{what} is {got!r:.200}, not {wanted!r:.200}")

    failed = answer.status != 200 or "error" in expect or expect["finish_reason"] is None
    if failed:
        # A refusal of the provider, a body that is none, an answer without an end: never a success.
        same("finish reason", result.finish_reason, "error")
        if result.error is not None and answer.status != 200:
            same("provider status", result.error.provider_status, answer.status)
        if result.error is not None and "error" in expect:
            message = str(expect["error"]["message"])[:100]
            if message not in result.error.message:
                found.append(f"error is {result.error.message!r:.200}, without {message!r}")
        return found
    if result.error is not None:
        return [f"the run failed: {result.error.kind}: {result.error.message}"]
    same("text", result.text, expect["text"] + expect.get("refusal", ""))
    same("reasoning", result.reasoning_text, expect["reasoning"])
    usage = expect["usage"] or {}
    same(
        "usage",
        (result.usage.input_tokens, result.usage.output_tokens, result.usage.total_tokens),
        tuple(usage.get(f"{kind}_tokens", 0) for kind in ("prompt", "completion", "total")),
    )
    same(
        "tool calls",
        [
            (call.tool_name, None if call.invalid_args is not None else call.args)
            for call in result.tool_calls
        ],
        [(call["name"], call["arguments"]) for call in expect["tool_calls"]],
    )
    ends = [chunk for chunk in chunks if chunk.type == "step-finish"]
    same("the provider's finish reason", [end.raw_reason for end in ends], [expect["finish_reason"]])
    same("the model's name", [end.response_model for end in ends], [expect["response_model"] or ""])
    return found


async def check_one(client: Client, answer: RecordedAnswer) -> list[str]:
    """Run it, read it back, compare."""
    stream = client.agent(answer.agent_id).stream("Hello", timeout=RUN_TIMEOUT)
    chunks = [chunk async for chunk in stream]
    result = await stream.result()
    found = differences(answer, chunks, result)
    if [chunk async for chunk in client.runs.watch(stream.run_id)] != chunks:
        found.append("WatchRun shows other chunks than Stream did")
    if [chunk.sequence for chunk in chunks] != list(range(1, len(chunks) + 1)):
        found.append("the chunks are not numbered 1, 2, 3 and so on")
    return found


@contextlib.asynccontextmanager
async def replay_server(folder: Path) -> AsyncIterator[str]:
    """The base URL of the recordings' own server, run as a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(folder / "replay_server.py"),
        *("--dir", str(folder), "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 10)).decode()
        yield f"{line.rpartition(' on ')[2].strip()}/v1"
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def check_recordings(folder: Path, work: Path) -> bool:
    """Play all of them; prints what differs. `work` is a folder for the database and the log."""
    answers = list(recorded_answers(folder))
    limit = asyncio.Semaphore(AT_ONCE)
    failures: dict[str, list[str]] = {}
    async with replay_server(folder) as base_url:
        provider = {"base_url": base_url, "requires_key": False, "max_retries": 0}
        server = ServerProcess(
            "examples.recordings_app:app",
            store=work / "recordings.db",
            log=work / "recordings.log",
            environment={
                "ENTRACTE_RECORDINGS": str(folder),
                "ENTRACTE_PROVIDERS": json.dumps({"replay": provider}),
            },
        )
        async with server, Client(server.address) as client:

            async def one(answer: RecordedAnswer) -> None:
                async with limit:
                    found = await check_one(client, answer)
                if found:
                    failures[answer.agent_id] = found

            async with asyncio.TaskGroup() as group:
                for answer in answers:
                    group.create_task(one(answer))
    for agent_id, found in sorted(failures.items()):
        print(f"{agent_id}:")
        for line in found:
            print(f"  {line}")
    files = len({answer.recording for answer in answers})
    print(
        f"Recordings: {files} files, {len(answers)} answers through server, store and SDK: "
        f"{len(answers) - len(failures)} as expected, {len(failures)} not."
    )
    return not failures
