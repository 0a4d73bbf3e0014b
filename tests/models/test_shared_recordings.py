"""Recorded traffic of real providers, replayed over a real connection: whole, in pieces, cut, silent."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from entracte_server.domain.chunks import File, Source
from entracte_server.models import Providers, ProviderSettings
from tests.models.support import SHARED, Outcome, ask

FOLDER = SHARED / "recordings"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared recordings are not here")

# Complete bodies of which no record has a finish reason: to us they are cut, unless the provider is
# said to be like that.
NO_FINISH = ("116.0", "184.0", "186.0")
NOT_AN_ANSWER = ("040.0", "914.0")


@dataclass
class Recording:
    number: str
    exchange: int
    stream: bool
    status: int
    body: bytes
    expect: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.number}.{self.exchange}"

    @property
    def fails(self) -> bool:
        return self.status != 200 or "error" in self.expect or self.key in NOT_AN_ANSWER

    def finish_seen(self, size: int) -> bool:
        """Whether the first `size` bytes hold a record with a finish reason, read as plainly as can be."""
        for line in self.body[:size].split(b"\n"):
            if not line.startswith(b"data:"):
                continue
            try:
                choices = json.loads(line[5:]).get("choices") or []
            except ValueError:
                continue
            if any(choice.get("finish_reason") for choice in choices if not choice.get("index")):
                return True
        return False


def recordings() -> Iterator[Recording]:
    for path in sorted(FOLDER.glob("[0-9]*.json")):
        record = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        for index, one in enumerate(record.get("exchanges") or [record]):
            yield Recording(
                path.name[:3],
                index,
                one["kind"] == "stream",
                one["status"],
                one["body"].encode("utf-8", "surrogateescape"),
                one["expect"],
            )


ALL = list(recordings()) if FOLDER.is_dir() else []
ANSWERS = [one for one in ALL if not one.fails and one.key not in (*NO_FINISH, "916.0")]
STREAMS = [one for one in ANSWERS if one.stream]


@pytest.fixture(scope="module")
def replay() -> Iterator[str]:
    """The URL of the replay server, run as a process."""
    command = [sys.executable, str(FOLDER / "replay_server.py"), "--dir", str(FOLDER), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split(" on ")[1].strip()
        finally:
            server.terminate()


Ask = Callable[..., Coroutine[Any, Any, Outcome]]


@pytest.fixture
async def ask_for(replay: str) -> AsyncIterator[Ask]:
    """Asks for a recording with options of the replay server."""
    made: dict[str, Providers] = {}

    async def one(recording: Recording, *, provider: dict[str, Any] | None = None, **options: Any) -> Outcome:
        settings = {"max_retries": 0, "idle_timeout": 10.0, "requires_key": False, **(provider or {})}
        providers = made.get(str(provider))
        if providers is None:
            providers = Providers([ProviderSettings("test", base_url=f"{replay}/v1", **settings)])
            made[str(provider)] = providers
        chosen = "".join(f";{key}={value}" for key, value in options.items())
        return await ask(providers.resolve(f"test/{recording.number};exchange={recording.exchange}{chosen}"))

    yield one
    for providers in made.values():
        await providers.aclose()


async def each(of: list[Recording], work: Callable[[Recording], Coroutine[Any, Any, None]]) -> None:
    """Runs `work` for every recording, some at a time, naming the one that fails."""
    limit = asyncio.Semaphore(8)

    async def one(recording: Recording) -> None:
        async with limit:
            try:
                await work(recording)
            except AssertionError as error:
                raise AssertionError(f"recording {recording.key}: {error}") from error

    async with asyncio.TaskGroup() as group:
        for recording in of:
            group.create_task(one(recording))


def check(recording: Recording, outcome: Outcome) -> None:
    expect = recording.expect
    finish = outcome.finish
    assert outcome.text == expect["text"] + expect.get("refusal", "")
    assert outcome.reasoning == expect["reasoning"]
    assert finish.refusal == expect.get("refusal", "")
    assert finish.raw_reason == (expect["finish_reason"] or "")
    assert finish.response_model == (expect["response_model"] or "")
    usage = expect["usage"] or {}
    assert (finish.usage.input, finish.usage.output, finish.usage.total) == (
        usage.get("prompt_tokens", 0),
        usage.get("completion_tokens", 0),
        usage.get("total_tokens", 0),
    )
    wanted = [(call["name"], call["arguments"]) for call in expect["tool_calls"]]
    assert [
        (call.tool_name, None if call.args is None else json.loads(call.args)) for call in outcome.calls
    ] == wanted
    for call, one in zip(outcome.calls, expect["tool_calls"], strict=True):
        assert one["id"] in (None, call.tool_call_id)
        if call.args is None:
            assert call.invalid_args == one["arguments_raw"]
    cited = expect.get("citations") or [
        note["url_citation"]["url"] for note in expect.get("annotations") or []
    ]
    assert [source.url for source in outcome.of(Source)] == list(dict.fromkeys(cited))
    assert len(outcome.of(File)) == len(expect.get("images") or [])


async def test_whole(ask_for: Ask) -> None:
    async def work(recording: Recording) -> None:
        check(recording, await ask_for(recording))

    assert len(ANSWERS) > 100
    await each(ANSWERS, work)


@pytest.mark.parametrize("seed", [1, 2])
async def test_in_random_pieces(ask_for: Ask, seed: int) -> None:
    async def work(recording: Recording) -> None:
        size = max(7, len(recording.body) // 40)
        check(recording, await ask_for(recording, split=size, seed=seed))

    await each(ANSWERS, work)


async def test_in_very_small_pieces(ask_for: Ask) -> None:
    async def work(recording: Recording) -> None:
        check(recording, await ask_for(recording, split=3, seed=3))

    await each([one for one in ANSWERS if len(one.body) < 6000], work)


async def test_with_other_line_ends_and_keep_alives(ask_for: Ask) -> None:
    async def work(recording: Recording) -> None:
        check(recording, await ask_for(recording, crlf=1, comment=2, split=400, seed=4))

    await each(STREAMS, work)


@pytest.mark.parametrize("frame", ["close", "length"])
async def test_framed_in_other_ways(ask_for: Ask, frame: str) -> None:
    async def work(recording: Recording) -> None:
        check(recording, await ask_for(recording, frame=frame))

    await each(ANSWERS[::4], work)


async def test_failures(ask_for: Ask) -> None:
    async def work(recording: Recording) -> None:
        outcome = await ask_for(recording)
        assert outcome.error is not None
        assert outcome.kind == "provider_error"
        assert outcome.text == recording.expect["text"]
        assert outcome.reasoning == recording.expect["reasoning"]
        if recording.status != 200:
            assert outcome.error.status == recording.status
            assert outcome.error.retryable == (recording.status == 429 or recording.status >= 500)
        error = recording.expect.get("error")
        if error is not None:
            assert error["message"][:100] in outcome.error.message

    await each([one for one in ALL if one.fails], work)


async def test_without_a_finish_reason(ask_for: Ask) -> None:
    async def work(recording: Recording) -> None:
        assert (await ask_for(recording)).kind == "cut"
        check(recording, await ask_for(recording, provider={"finish_optional": True}))

    await each([one for one in ALL if one.key in NO_FINISH], work)
    [empty] = [one for one in ALL if one.key == "916.0"]
    assert (await ask_for(empty)).kind == "empty_stream"


async def test_failures_and_then_an_answer(replay: str) -> None:
    settings = ProviderSettings("test", base_url=f"{replay}/r/908;session=a/v1", requires_key=False)
    providers = Providers([settings])
    assert (await ask(providers.resolve("test/m"))).finish.reason == "stop"
    await providers.aclose()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("how", ["fin", "rst", "clean"])
async def test_cut(ask_for: Ask, how: str, seed: int) -> None:
    """A cut answer never passes for a whole one, and a whole one is not lost where it can be helped."""
    dice = random.Random(f"{how} {seed}")

    async def work(recording: Recording) -> None:
        cut = dice.randrange(1, len(recording.body))
        outcome = await ask_for(recording, cut=cut, cutmode=how)
        expect = recording.expect
        assert (expect["text"] + expect.get("refusal", "")).startswith(outcome.text)
        assert expect["reasoning"].startswith(outcome.reasoning)
        if recording.stream and recording.finish_seen(cut):
            # After a reset the system may throw away what had arrived.
            assert how == "rst" or outcome.error is None
        else:
            assert outcome.kind in ("cut", "empty_stream", "connection")
            assert outcome.calls == []

    await each(ANSWERS, work)


async def test_silent(ask_for: Ask) -> None:
    async def work(recording: Recording) -> None:
        cut = max(1, len(recording.body) // 3)
        if recording.finish_seen(cut):
            return
        limits = {"idle_timeout": 0.4, "patience": 0.5}
        outcome = await ask_for(recording, cut=cut, cutmode="hang", provider=limits)
        assert outcome.kind == "stall"
        assert outcome.calls == []

    await each(ANSWERS[::5], work)
