"""Scorers judge results after the reply: on which runs, by whom, how often, and where it is read."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from entracte import Client, FollowUp, InvalidArgument, RunNotFound
from entracte.v1 import options_pb2, run_service_pb2
from entracte_server import Agent, App, LlmScorer, PiiFilter, Sampled, Score, ScorerInput, scorer, tool
from entracte_server.agents.scorers import CodeScorer
from entracte_server.engine import follow_ups, reading
from entracte_server.engine.follow_up_jobs import sampled
from entracte_server.testing import TestServer, scripted, serve
from tests import stores
from tests.rpc.support import Peer, generate, peer_of, refused, rest_of, saying, until

pytestmark = pytest.mark.usefixtures("each_store")


def default_store() -> dict[str, Any]:
    return {**stores.default_store()}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_ups, "DELAYS", (0.02, 0.02))
    monkeypatch.setattr(follow_ups, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(reading, "LOOK_SECONDS", 0.05)


class Judge:
    """A scorer that keeps what it was given. `answers` are given one after the other, the last one again
    and again; exceptions are raised."""

    def __init__(self, *answers: Any, name: str = "tone") -> None:
        self.given: list[ScorerInput] = []
        self._answers = answers or (0.5,)
        self.scorer = CodeScorer(name=name, function=self._score)

    def _score(self, given: ScorerInput) -> Any:
        self.given.append(given)
        answer = self._answers[min(len(self.given), len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@asynccontextmanager
async def serving(app: App, **settings: Any) -> AsyncIterator[tuple[TestServer, Client]]:
    async with (
        serve(app, **{**default_store(), **settings}) as server,
        Client(server.address) as client,
    ):
        yield server, client


def talk(**arguments: Any) -> Agent:
    return Agent(id="talk", model=saying({"text": "good day"}), **arguments)


async def scores(client: Client, run_id: str) -> list[FollowUp]:
    return list(await client.runs.follow_ups(run_id, timeout=20))


class TestAgents:
    async def test_an_agent_s_own_scorer_just_runs(self) -> None:
        judge = Judge(Score(0.75, "polite"))
        async with serving(App(agents=[talk(scorers=[judge.scorer])])) as (_, client):
            result = await client.agent("talk").generate("hello", request_context={"who": "ada"})
            [found] = await scores(client, result.run_id)
            assert (found.kind, found.name, found.scorer, found.state) == (
                "score",
                "tone",
                "tone",
                "succeeded",
            )
            assert (found.score, found.reason, found.error) == (0.75, "polite", "")
            assert (found.attempts, found.sampling_ratio) == (1, None)
            assert found.finish_time is not None
            assert found.create_time is not None
            [given] = judge.given
            assert (given.run_id, given.agent_id, given.text) == (result.run_id, "talk", "good day")
            assert (given.input_text, given.request_context, given.step) == ("hello", {"who": "ada"}, 1)
            assert [message.text for message in given.output_messages] == ["good day"]
            # It is read everywhere, and has changed nothing of the result.
            run = await client.runs.get(result.run_id)
            assert run.follow_ups == (found,)
            assert run.result == result
            assert [listed.follow_ups async for listed in client.runs.list()] == [(found,)]

    async def test_without_scorers_nothing_is_done(self) -> None:
        judge = Judge()
        async with serving(App(agents=[talk()], scorers=[judge.scorer])) as (_, client):
            result = await client.agent("talk").generate("hello")
            assert await scores(client, result.run_id) == []
            with pytest.raises(RunNotFound):
                await client.runs.follow_ups("unknown")
        assert judge.given == []

    async def test_only_results_are_scored(self) -> None:
        judge = Judge()
        agents = [
            Agent(id="fails", model=saying({"throw": "broken"}), scorers=[judge.scorer]),
            Agent(id="slow", model=saying({"delay": 3_600_000}), scorers=[judge.scorer]),
        ]
        async with serving(App(agents=agents)) as (_, client):
            failed = await client.agent("fails").generate("hello")
            assert failed.finish_reason == "error"
            stream = client.agent("slow").stream("hello")
            await anext(aiter(stream))
            cancelled = await client.runs.cancel(stream.run_id, wait=True)
            assert cancelled.state == "cancelled"
            for run_id in (failed.run_id, cancelled.run_id):
                assert await scores(client, run_id) == []
        assert judge.given == []

    async def test_they_run_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No server looks around for them here."""
        monkeypatch.setattr(follow_ups, "LOOK_SECONDS", 3600.0)
        judge = Judge(RuntimeError("not now"), 0.25)
        async with serving(App(agents=[talk(scorers=[judge.scorer])])) as (_, client):
            results = [await client.agent("talk").generate("a") for _ in range(3)]
            found = [(await scores(client, result.run_id))[0] for result in results]
            assert [job.state for job in found] == ["succeeded"] * 3

    async def test_no_more_than_some_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The others wait for their turn, without anybody looking around."""
        monkeypatch.setattr(follow_ups, "LOOK_SECONDS", 3600.0)
        monkeypatch.setattr(follow_ups, "AT_ONCE", 2)
        busy = most = 0

        @scorer
        async def tone(given: ScorerInput) -> float:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.01)
            busy -= 1
            return 1

        async with serving(App(agents=[talk(scorers=[tone])])) as (_, client):
            agent = client.agent("talk")
            results = await asyncio.gather(*(agent.generate("a") for _ in range(9)))
            for result in results:
                [found] = await scores(client, result.run_id)
                assert found.state == "succeeded"
        assert most == 2


class TestOptions:
    async def test_a_request_s_scorers_replace_the_agent_s(self) -> None:
        own, other = Judge(name="own"), Judge(name="other")
        app = App(agents=[talk(scorers=[own.scorer])], scorers=[other.scorer])
        async with serving(app) as (_, client):
            agent = client.agent("talk")
            result = await agent.generate(
                "a", scorers={"mine": {"scorer": "other"}, "none": {"scorer": "own", "sampling_ratio": 0}}
            )
            found = await scores(client, result.run_id)
            assert [(f.name, f.scorer, f.state) for f in found] == [
                ("mine", "other", "succeeded"),
                ("none", "own", "skipped"),
            ]
            assert (found[1].score, found[1].sampling_ratio, found[1].attempts) == (None, 0.0, 0)
            result = await agent.generate("b", scorers=["other"])
            assert [f.name for f in await scores(client, result.run_id)] == ["other"]
        assert (len(own.given), len(other.given)) == (0, 2)

    async def test_they_hold_over_a_suspension_and_a_restart(self, tmp_path: Any) -> None:
        judge = Judge()

        @tool(requires_approval=True)
        async def pay(amount: int) -> dict[str, int]:
            """Pays."""
            return {"paid": amount}

        def app() -> App:
            asks: list[Any] = [{"tool": "pay", "id": "c1", "args": {"amount": 7}}]
            steps = [asks, [{"text": "paid"}]]
            model = scripted(steps, position="transcript")
            return App(agents=[Agent(id="payer", model=model, tools=[pay])], scorers=[judge.scorer])

        store = default_store() or {"store": tmp_path / "db"}
        async with serving(app(), **store) as (_, client):
            parked = await client.agent("payer").generate(
                "pay", scorers={"tone": {"sampling": "none"}}, return_scorer_data=True
            )
            assert parked.finish_reason == "suspended"
            assert parked.scoring_data is not None
            assert await client.runs.follow_ups(parked.run_id, wait=False) == ()
        async with serving(app(), **store) as (_, client):
            result = await client.agent("payer").approve(parked.pending_calls[0])
            [found] = await scores(client, result.run_id)
            assert found.score == 0.5
            assert result.scoring_data is not None
        [given] = judge.given
        [use] = given.tool_uses
        assert (use.tool_name, use.args, use.status, use.result) == (
            "pay",
            {"amount": 7},
            "result",
            {"paid": 7},
        )

    @pytest.mark.parametrize(
        ("given", "field", "words"),
        [
            ({"x": {}}, "options.scorers.x.scorer", "there is no scorer 'x'; the server has: tone"),
            ({"x": {"scorer": "y"}}, "options.scorers.x.scorer", "there is no scorer 'y'"),
            ({"tone": {"sampling": 2}}, "options.scorers.tone.sampling_ratio", "is required"),
            (
                {"tone": {"sampling": 1, "sampling_ratio": 1}},
                "options.scorers.tone.sampling_ratio",
                "goes with",
            ),
            ({"tone": {"sampling": 7}}, "options.scorers.tone.sampling", "is not a sampling"),
            ({"tone": {"sampling_ratio": 1.5}}, "options.scorers.tone.sampling_ratio", "from 0 to 1"),
            (
                {"tone": {"sampling_ratio": float("nan")}},
                "options.scorers.tone.sampling_ratio",
                "from 0 to 1",
            ),
            ({"a b": {"scorer": "tone"}}, "options.scorers", "'a b' cannot name a scorer"),
            ({f"k{i}": {"scorer": "tone"} for i in range(65)}, "options.scorers", "at most 64"),
        ],
    )
    async def test_what_is_refused(self, given: Any, field: str, words: str) -> None:
        app = App(agents=[talk()], scorers=[Judge().scorer])
        async with serve(app, **default_store()) as server, peer_of(server.address) as peer:
            chosen = {key: options_pb2.ScorerOptions(**value) for key, value in given.items()}
            refusal = await peer.refuse("Generate", generate(scorers=chosen))
            assert (refusal.code, list(refusal.violations)) == ("INVALID_ARGUMENT", [field])
            assert words in refusal.violations[field]

    async def test_a_ratio_without_a_rate_is_refused_in_the_sdk_s_words(self) -> None:
        app = App(agents=[talk()], scorers=[Judge().scorer])
        async with serving(app) as (_, client):
            with pytest.raises(InvalidArgument, match="sampling_ratio"):
                await client.agent("talk").generate("a", scorers={"tone": {"sampling": "ratio"}})


class TestSampling:
    async def test_it_is_decided_once_and_always_alike(self) -> None:
        judge = Judge()
        app = App(agents=[talk(scorers={"tone": Sampled(judge.scorer, 0.5)})])
        async with serving(app) as (_, client):
            agent = client.agent("talk")
            results = await asyncio.gather(*(agent.generate("a", run_id=f"run-{n}") for n in range(12)))
            for result in results:
                [found] = await scores(client, result.run_id)
                wanted = sampled(result.run_id, "tone", 0.5)
                assert found.state == ("succeeded" if wanted else "skipped")
                assert found.sampling_ratio == 0.5
        chosen = {given.run_id for given in judge.given}
        assert chosen == {f"run-{n}" for n in range(12) if sampled(f"run-{n}", "tone", 0.5)}
        assert 0 < len(chosen) < 12

    def test_the_share_is_about_right(self) -> None:
        drawn = [sampled(f"run-{n}", "tone", 0.25) for n in range(2000)]
        assert 400 < sum(drawn) < 600
        assert not any(sampled(f"run-{n}", "tone", 0.0) for n in range(2000))
        assert all(sampled(f"run-{n}", "tone", 1.0) for n in range(2000))


class TestFailure:
    async def test_an_error_is_tried_again(self) -> None:
        judge = Judge(RuntimeError("not now"), 0.25)
        async with serving(App(agents=[talk(scorers=[judge.scorer])])) as (_, client):
            result = await client.agent("talk").generate("a")
            [found] = await scores(client, result.run_id)
            assert (found.state, found.score, found.attempts, found.error) == ("succeeded", 0.25, 2, "")

    async def test_but_not_for_ever(self) -> None:
        judge = Judge(RuntimeError("never"))
        async with serving(App(agents=[talk(scorers=[judge.scorer])])) as (_, client):
            result = await client.agent("talk").generate("a")
            [found] = await scores(client, result.run_id)
            assert (found.state, found.score, found.attempts, found.error) == ("failed", None, 3, "never")
        assert len(judge.given) == 3

    async def test_one_that_fails_does_not_disturb_another(self) -> None:
        good, bad = Judge(name="good"), Judge(2.0, name="bad")
        async with serving(App(agents=[talk(scorers=[good.scorer, bad.scorer])])) as (_, client):
            result = await client.agent("talk").generate("a")
            bad_one, good_one = await scores(client, result.run_id)
            assert (good_one.state, bad_one.state) == ("succeeded", "failed")
            assert "a score is a number from 0 to 1" in bad_one.error


class TestJudges:
    async def test_a_model_judges(self) -> None:
        model = scripted(
            [[{"text": "no idea"}], [{"text": '```json\n{"score": 0.5, "reason": "fair"}\n```'}]]
        )
        judge = LlmScorer(name="helpful", model=model, criteria="Is it helpful?")
        async with serving(App(agents=[talk(instructions="Be kind.")], scorers=[judge])) as (_, client):
            result = await client.agent("talk").generate("hello", scorers=["helpful"])
            [found] = await scores(client, result.run_id)
            assert (found.state, found.score, found.reason, found.attempts) == ("succeeded", 0.5, "fair", 2)
            # Of both attempts, and none of the run's.
            assert found.usage.total_tokens == 30
            run = await client.runs.get(result.run_id)
            assert run.usage.total_tokens == result.usage.total_tokens == 15
        first, second = model.requests
        assert first == second
        told = json.loads(first.messages[1].text)
        assert told == {"input": [{"role": "user", "text": "hello"}], "output": "good day"}
        assert "Is it helpful?" in first.messages[0].text

    async def test_of_an_object(self) -> None:
        """The object is what came of the run, not the words around it."""
        model = scripted([[{"text": '{"score": 1}'}]])
        judge, code = LlmScorer(name="right", model=model, criteria="Is it right?"), Judge(name="code")
        writer = Agent(id="writer", model=saying({"text": 'Here: {"n": 9007199254740993}'}))
        async with serving(App(agents=[writer], scorers=[judge, code.scorer])) as (_, client):
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            result = await client.agent("writer").generate(
                "hello", structured_output={"schema": schema}, scorers=["right", "code"]
            )
            assert result.object == {"n": 9007199254740993}
            assert [found.score for found in await scores(client, result.run_id)] == [0.5, 1.0]
        [request] = model.requests
        assert json.loads(request.messages[1].text)["output"] == {"n": 9007199254740993}
        [given] = code.given
        assert given.object == {"n": 9007199254740993}

    async def test_a_model_that_fails(self) -> None:
        judge = LlmScorer(name="helpful", model=saying({"throw": "out of order"}), criteria="c")
        async with serving(App(agents=[talk(scorers=[judge])])) as (_, client):
            result = await client.agent("talk").generate("hello")
            [found] = await scores(client, result.run_id)
            assert (found.state, found.attempts, found.error) == ("failed", 3, "out of order")


class TestScoringData:
    async def test_what_scorers_see(self) -> None:
        app = App(agents=[talk(instructions="Be kind.")])
        async with serving(app) as (_, client):
            agent = client.agent("talk")
            result = await agent.generate("hello", system="Be brief.", return_scorer_data=True)
            data = result.scoring_data
            assert data is not None
            assert data.input == {
                "input_messages": [{"role": "user", "parts": [{"type": "text", "text": "hello"}]}],
                "remembered_messages": [],
                "system_messages": [
                    {"role": "system", "parts": [{"type": "text", "text": text}]}
                    for text in ("Be kind.", "Be brief.")
                ],
            }
            [said] = data.output
            assert (said["role"], said["parts"]) == ("assistant", [{"type": "text", "text": "good day"}])
            assert (await client.runs.get(result.run_id)).result == result
            stream = agent.stream("hello", system="Be brief.", return_scorer_data=True)
            folded = (await stream.result()).scoring_data
            assert folded is not None
            assert folded.input == data.input
            assert (await agent.generate("hello")).scoring_data is None

    async def test_an_agent_s_results_may_have_it(self) -> None:
        async with serving(App(agents=[talk(return_scorer_data=True)])) as (_, client):
            agent = client.agent("talk")
            result = await agent.generate("hello")
            assert result.scoring_data is not None
            assert (await client.runs.get(result.run_id)).result == result
            assert (await agent.generate("hello", return_scorer_data=False)).scoring_data is None


class TestProcessors:
    async def test_scorers_see_what_processors_left(self) -> None:
        judge = Judge()
        agent = Agent(
            id="talk",
            model=saying({"text": "write to ada@example.com"}),
            input_processors=[PiiFilter()],
            output_processors=[PiiFilter()],
            scorers=[judge.scorer],
        )
        async with serving(App(agents=[agent])) as (_, client):
            result = await client.agent("talk").generate("I am bob@example.com", return_scorer_data=True)
            await scores(client, result.run_id)
            data = result.scoring_data
            assert data is not None
            assert "example.com" not in f"{data.input_json}{data.output_json}"
        [given] = judge.given
        assert (given.input_text, given.text) == ("I am [EMAIL]", "write to [EMAIL]")
        assert "example.com" not in repr(given)

    async def test_what_was_vetoed_is_not_scored(self) -> None:
        judge = Judge()
        agent = Agent(
            id="talk",
            model=saying({"text": "write to ada@example.com"}),
            output_processors=[PiiFilter(strategy="block")],
            scorers=[judge.scorer],
        )
        async with serving(App(agents=[agent])) as (_, client):
            result = await client.agent("talk").generate("hello", return_scorer_data=True)
            assert result.tripwire is not None
            assert result.scoring_data is not None
            assert "example.com" not in str(result.scoring_data.output_json)
            assert await scores(client, result.run_id) == []
        assert judge.given == []


class TestLate:
    """`WatchRun` with `include_late`."""

    @staticmethod
    async def responses(peer: Peer, run_id: str, **fields: Any) -> list[run_service_pb2.WatchRunResponse]:
        request = run_service_pb2.WatchRunRequest(run_id=run_id, include_late=True, **fields)
        return await peer.call("WatchRun", request)

    async def test_they_come_after_the_chunks(self) -> None:
        judge = Judge()
        app = App(agents=[talk(scorers=[judge.scorer])])
        async with serve(app, **default_store()) as server, peer_of(server.address) as peer:
            run_id = (await peer.one("Generate", generate())).run.run_id
            found = await self.responses(peer, run_id)
            assert [len(response.follow_ups) for response in found if not response.chunks] == [1]
            assert found[-1].follow_ups[0].score.score == 0.5
            assert not any(response.follow_ups for response in found[:-1])
            last = (await peer.run(run_id)).last_sequence
            [again] = await self.responses(peer, run_id, after_sequence=last)
            assert again.follow_ups == found[-1].follow_ups
            request = run_service_pb2.WatchRunRequest(run_id=run_id)
            assert not any(response.follow_ups for response in await peer.call("WatchRun", request))

    async def test_it_stays_until_all_is_settled(self) -> None:
        go_on = threading.Event()
        slow = CodeScorer(name="slow", function=lambda given: go_on.wait(20))
        app = App(agents=[talk(scorers=[Judge().scorer, slow])])
        async with (
            serve(app, **default_store(), keep_alive=0.1) as server,
            peer_of(server.address) as peer,
        ):
            run_id = (await peer.one("Generate", generate())).run.run_id
            request = run_service_pb2.WatchRunRequest(run_id=run_id, include_late=True)
            stream = peer.open("WatchRun", request)
            names, idle = [], 0
            async for response in stream:
                names += [job.name for job in response.follow_ups]
                idle += bool(response.through_sequence)
                if names == ["tone"] and idle:
                    go_on.set()
            assert names == ["tone", "slow"]

    async def test_a_stopping_server_sends_them_away(self) -> None:
        go_on = threading.Event()
        slow = CodeScorer(name="slow", function=lambda given: go_on.wait(20))
        server = serve(App(agents=[talk(scorers=[slow])]), **default_store())
        async with peer_of((await server.__aenter__()).address) as peer:
            run_id = (await peer.one("Generate", generate())).run.run_id
            request = run_service_pb2.WatchRunRequest(run_id=run_id, include_late=True)
            call = peer.open("WatchRun", request)
            assert (await call.read()).chunks
            stopping = asyncio.create_task(server.__aexit__(None, None, None))
            refusal = await refused(rest_of(call))
            assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "SERVER_DRAINING")
            await stopping
            go_on.set()

    async def test_a_run_that_is_parked_or_has_none(self) -> None:
        app = App(
            agents=[
                talk(),
                Agent(id="parks", model=saying({"tool": "theirs", "id": "c"}), scorers=[Judge().scorer]),
            ]
        )
        async with serve(app, **default_store()) as server, peer_of(server.address) as peer:
            run_id = (await peer.one("Generate", generate())).run.run_id
            assert all(response.chunks for response in await self.responses(peer, run_id))
            tools = [options_pb2.ClientTool(name="theirs")]
            run_id = (await peer.one("Generate", generate("parks", client_tools=tools))).run.run_id
            assert all(response.chunks for response in await self.responses(peer, run_id))


class TestProcesses:
    async def test_another_does_what_the_first_does_not(self, tmp_path: Any) -> None:
        """The run ends in a process that is busy; who watches it there hears of the other."""
        first, second = Judge(), Judge(0.25)
        store = default_store() or {"store": tmp_path / "db"}
        async with serving(App(agents=[talk(scorers=[first.scorer])]), **store) as (one, client):
            one.engine._follow_ups._handlers = frozenset()
            async with serve(App(agents=[talk(scorers=[second.scorer])]), **store):
                result = await client.agent("talk").generate("a")
                [found] = await scores(client, result.run_id)
                assert (found.state, found.score, found.attempts) == ("succeeded", 0.25, 1)
        assert first.given == []

    async def test_what_no_server_can_do_is_given_up(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = default_store() or {"store": tmp_path / "db"}
        monkeypatch.setattr(follow_ups.FollowUps, "look", lambda self: None)
        monkeypatch.setattr(follow_ups, "LOOK_SECONDS", 60.0)
        async with serving(App(agents=[talk(scorers=[Judge().scorer])]), **store) as (_, client):
            result = await client.agent("talk").generate("a")
        monkeypatch.setattr(follow_ups, "LOOK_SELDOM", 0.05)
        monkeypatch.setattr(follow_ups, "GIVEN_UP", -1.0)
        async with serving(App(agents=[talk()]), **store) as (_, client):
            [found] = await scores(client, result.run_id)
            assert (found.state, found.error) == ("failed", "No server has a scorer called 'tone'.")

    async def test_a_stopping_server_leaves_them_to_others(self, tmp_path: Any) -> None:
        """An attempt that was cut off does not count."""
        store = default_store() or {"store": tmp_path / "db"}
        begun = asyncio.Event()

        @scorer(name="tone")
        async def endless(given: ScorerInput) -> float:
            begun.set()
            await asyncio.sleep(3600)
            return 0

        async with serving(App(agents=[talk(scorers=[endless])]), **store) as (_, client):
            result = await client.agent("talk").generate("a")
            await begun.wait()
        async with serving(App(agents=[talk()], scorers=[Judge().scorer]), **store) as (_, client):
            [found] = await scores(client, result.run_id)
            assert (found.state, found.score, found.attempts) == ("succeeded", 0.5, 1)

    async def test_waiting_outlives_a_restart(self, tmp_path: Any) -> None:
        store = default_store() or {"store": tmp_path / "db"}
        begun = asyncio.Event()

        @scorer(name="tone")
        async def endless(given: ScorerInput) -> float:
            begun.set()
            await asyncio.sleep(3600)
            return 0

        first = serve(App(agents=[talk(scorers=[endless])]), **store)
        address = (await first.__aenter__()).address
        async with Client(address) as client:
            result = await client.agent("talk").generate("a")
            waiting = asyncio.create_task(client.runs.follow_ups(result.run_id, timeout=40))
            await begun.wait()
            await first.__aexit__(None, None, None)
            async with serve(App(agents=[talk()], scorers=[Judge().scorer]), **store, address=address):
                [found] = await waiting
                assert (found.state, found.score) == ("succeeded", 0.5)

    async def test_deleted_with_the_run(self) -> None:
        go_on = threading.Event()
        entered: list[ScorerInput] = []

        def body(given: ScorerInput) -> float:
            entered.append(given)
            return float(go_on.wait(20))

        slow = CodeScorer(name="slow", function=body)
        async with serving(App(agents=[talk(scorers=[slow])])) as (server, client):
            result = await client.agent("talk").generate("a")
            await until(lambda: bool(entered), "the scorer begins")
            watching = asyncio.create_task(client.runs.follow_ups(result.run_id, timeout=20))
            await client.runs.delete(result.run_id)
            go_on.set()
            with pytest.raises(RunNotFound):
                await watching
            await until(lambda: not server.engine._follow_ups._tasks, "the job ends")
            assert await server.store.follow_ups("local", [result.run_id]) == []
