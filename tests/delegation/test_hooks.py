"""Hooks around delegations: what they change, what an error of theirs means, and who may name them."""

from collections.abc import Callable
from typing import Any

import pytest

from entracte import AgentUnavailable, RequestInvalid
from entracte_server import (
    App,
    Delegation,
    DelegationDone,
    DelegationInfo,
    DelegationVerdict,
    Hook,
    ToolContext,
    text_message,
    tool,
)
from entracte_server.agents.hooks import HookKind
from tests.delegation.support import (
    agent,
    call,
    counting,
    delegate,
    model_of,
    prompts,
    results,
    says,
    serving,
)

START = {"on_delegation_start": "start"}


def hook(kind: HookKind, name: str, answer: Callable[[Any], Any]) -> Hook:
    async def function(info: Any) -> Any:
        return answer(info)

    return Hook(kind=kind, name=name, function=function)


async def test_what_hooks_change(store: str) -> None:
    """Prompt, instructions, limits, context and turns; and the result, with a word to the model. What was
    changed holds over a suspension, without asking again."""
    seen: list[Any] = []

    @tool
    async def look(ctx: ToolContext[Any]) -> Any:
        """Shows its context."""
        return dict(ctx.request_context)

    def start(info: DelegationInfo) -> Delegation:
        seen.append(info)
        return Delegation(
            prompt="do it well",
            instructions="Be brief.",
            max_steps=2,
            request_context={"tier": 2, "extra": True},
        )

    def choose(info: DelegationInfo) -> Any:
        seen.append(info)
        return [*info.messages[1:], text_message("user", "added"), text_message("system", "never heard")]

    def complete(info: DelegationDone) -> DelegationVerdict:
        seen.append(info)
        return DelegationVerdict(result_text="replaced", feedback="check it")

    helper = agent(
        "helper",
        [[{"text": "looking "}, call("look"), call("gated")], [call("look")]],
        instructions="You help.",
        tools=[look, counting("gated", [], gated=True)],
    )
    root = agent("root", [[delegate("helper")], says("end")], instructions="Secret.", agents=[helper])
    app = App(
        agents=[root],
        hooks=[
            hook("delegation_start", "start", start),
            hook("delegation_complete", "complete", complete),
            hook("message_filter", "choose", choose),
        ],
    )
    messages: list[Any] = [
        {"role": "system", "content": "Never tell."},
        "first",
        {"role": "assistant", "content": "second"},
        "third",
    ]
    options = {**START, "on_delegation_complete": "complete", "message_filter": "choose"}
    async with serving(app, store) as client:
        parked = await client.agent("root").generate(
            messages, delegation=options, request_context={"tier": 1, "user": "u"}
        )
    async with serving(app, store) as client:
        stream = client.agent("root").approve_stream(parked.pending_calls[0])
        result = await stream.result()
        start_info, filter_info, done = seen
        assert (start_info.prompt, filter_info.prompt) == ("do it", "do it well")
        assert [m.text for m in start_info.messages] == ["first", "second", "third"]
        assert (start_info.agent_id, start_info.step, start_info.run.run_id) == ("helper", 1, result.run_id)
        assert prompts(helper)[0] == [
            ("system", "You help."),
            ("system", "Be brief."),
            ("assistant", "second"),
            ("user", "third"),
            ("user", "added"),
            ("user", "do it well"),
        ]
        assert model_of(helper).calls == 2  # the limit of the hook
        context = {"tier": 2, "user": "u", "extra": True}
        inner = (await client.runs.get(done.agent_run_id)).result
        assert inner is not None
        assert results(inner.tool_results)["look"] == context
        assert (done.text, done.error, done.usage) == (
            "looking ",
            None,
            done.usage,
        )
        assert results(result.tool_results)["agent-helper"] == {
            "text": "replaced",
            "run_id": done.agent_run_id,
        }
        [told] = model_of(root).requests[1].messages[-2].parts
        assert told.output == '"replaced"'  # type: ignore[union-attr]
        assert prompts(root)[1][-1] == ("user", "<delegation>\ncheck it\n</delegation>")


async def test_rejecting_and_bailing_out(store: str) -> None:
    """A rejection is a result; a sub-agent that is not begun has no run. To bail ends the run at once."""
    reject = hook("delegation_start", "start", lambda _: Delegation(reject="not today"))
    bail = hook("delegation_complete", "bail", lambda _: DelegationVerdict(bail=True))
    helper = agent("helper", [says("helped")])
    root = agent(
        "root",
        [[delegate("helper")], says("so be it"), [delegate("helper")], says("not asked")],
        agents=[helper],
    )
    async with serving(App(agents=[root], hooks=[reject, bail]), store) as client:
        result = await client.agent("root").generate("go", delegation=START)
        assert results(result.tool_results) == {"agent-helper": "[Delegation Rejected] not today"}
        assert (result.text, model_of(helper).calls) == ("so be it", 0)
        assert [r.agent_id async for r in client.runs.list(include_children=True)] == ["root"]
        result = await client.agent("root").generate("go", delegation={"on_delegation_complete": "bail"})
        assert (result.stop_cause, result.finish_reason, result.text) == ("bail", "tool-calls", "")
        assert results(result.tool_results)["agent-helper"]["text"] == "helped"
        assert model_of(root).calls == 3


@pytest.mark.parametrize(("strategy", "fails"), [("", True), ("throw", True), ("warn", False)])
async def test_hooks_that_fail(store: str, strategy: str, fails: bool) -> None:
    """The call fails with what the hook said, unless it is to be ignored."""

    def broken(_: Any) -> Any:
        raise RuntimeError("out of order")

    helper = agent("helper", [says("helped")])
    root = agent(
        "root",
        [[delegate("helper")], says("end")],
        agents=[helper],
        on_delegation_start=hook("delegation_start", "broken", broken),
        hook_error_strategy=strategy,
    )
    async with serving(App(agents=[root]), store) as client:
        chunks = [c async for c in client.agent("root").stream("go")]
        errors = [(c.code, c.message) for c in chunks if c.type == "tool-error"]
        assert errors == ([("hook", "The hook broken failed: out of order")] if fails else [])
        assert model_of(helper).calls == int(not fails)
        assert chunks[-1].type == "finish"
        assert chunks[-1].reason == "stop"


OF_NO_USE: list[tuple[HookKind, Any]] = [
    ("delegation_start", Delegation(prompt=5)),  # type: ignore[arg-type]
    ("delegation_start", Delegation(prompt=" ")),
    ("delegation_start", Delegation(prompt="half a pair \ud800")),
    ("delegation_start", Delegation(instructions=5)),  # type: ignore[arg-type]
    ("delegation_start", Delegation(max_steps=0)),
    ("delegation_start", Delegation(max_tokens="many")),  # type: ignore[arg-type]
    ("delegation_start", Delegation(request_context={"x": object()})),
    ("delegation_start", Delegation(request_context=5)),  # type: ignore[arg-type]
    ("message_filter", ["words"]),
    ("message_filter", [text_message("user", "half a pair \ud800")]),
    ("delegation_complete", DelegationVerdict(result_text=5)),  # type: ignore[arg-type]
    ("delegation_complete", DelegationVerdict(feedback={"x": 1})),  # type: ignore[arg-type]
    ("delegation_complete", DelegationVerdict(feedback="half a pair \ud800")),
    ("delegation_complete", DelegationVerdict(bail="yes")),  # type: ignore[arg-type]
]


async def test_answers_that_are_of_no_use(store: str) -> None:
    """They are errors of the hook like any other, whatever is in them, and the run is as sound as before."""

    def odd(number: int) -> Hook:
        kind, answer = OF_NO_USE[number]
        return hook(kind, f"odd{number}", lambda _: answer)

    helper = agent("helper", [says("helped")])
    root = agent("root", [[delegate("helper")], says("end")] * 2 * len(OF_NO_USE), agents=[helper])
    async with serving(App(agents=[root], hooks=map(odd, range(len(OF_NO_USE)))), store) as client:
        for number, (kind, _) in enumerate(OF_NO_USE):
            for strategy in ("throw", "warn"):
                option = kind if kind == "message_filter" else f"on_{kind}"
                options = {option: f"odd{number}", "hook_error_strategy": strategy}
                chunks = [c async for c in client.agent("root").stream("go", delegation=options)]
                [*_, last] = chunks
                assert last.type == "finish"
                assert last.reason == "stop"
                errors = [(c.code, f"odd{number}" in c.message) for c in chunks if c.type == "tool-error"]
                assert errors == ([("hook", True)] if strategy == "throw" else [])
                if strategy == "warn":
                    told = results(c for c in chunks if not c.agent_path)["agent-helper"]
                    assert told["text"] == "helped"


async def test_a_result_of_a_hook_that_is_too_large(store: str) -> None:
    done: list[DelegationDone] = []

    def large(info: DelegationDone) -> DelegationVerdict:
        done.append(info)
        return DelegationVerdict(result_text="x" * 4 * 1024 * 1024)

    better = hook("delegation_start", "better", lambda _: Delegation(prompt="do it well"))
    helper = agent("helper", [says("helped")])
    root = agent(
        "root",
        [[delegate("helper")], says("end")],
        agents=[helper],
        on_delegation_start=better,
        on_delegation_complete=hook("delegation_complete", "large", large),
    )
    async with serving(App(agents=[root]), store) as client:
        chunks = [c async for c in client.agent("root").stream("go")]
        assert [(c.code, "too large" in c.message) for c in chunks if c.type == "tool-error"] == [
            ("delegation", True)
        ]
        assert [info.prompt for info in done] == ["do it well"]  # what it was asked, not what the model wrote


async def test_names_of_hooks(store: str) -> None:
    """They have to be there, of the right kind, and where a run goes on."""
    other = hook("delegation_complete", "other", lambda _: None)
    start = hook("delegation_start", "start", lambda _: None)
    helper = agent("helper", [[call("gated")], says("")], tools=[counting("gated", [], gated=True)])
    root = agent("root", [[delegate("helper")], says("end")], agents=[helper])
    async with serving(App(agents=[root], hooks=[other, start]), store) as client:
        for name in ("on_delegation_start", "on_delegation_complete", "message_filter"):
            wrong = "start" if name == "on_delegation_complete" else "other"
            with pytest.raises(RequestInvalid) as refusal:
                await client.agent("root").generate("go", delegation={name: wrong})
            [violation] = refusal.value.violations
            assert violation.field == f"options.delegation.{name}"
        with pytest.raises(ValueError, match="hook_error_strategy"):
            await client.agent("root").generate("go", delegation={"hook_error_strategy": "shrug"})
        parked = await client.agent("root").generate("go", delegation=START)
    async with serving(App(agents=[root]), store) as client:
        with pytest.raises(AgentUnavailable):
            await client.agent("root").approve(parked.pending_calls[0])
