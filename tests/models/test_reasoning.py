"""Thinking: shown once, kept as the provider needs it back, lifted out of tags where asked."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte_server.domain.chunks import ReasoningEnd, ReasoningSignature, RedactedReasoning
from entracte_server.domain.messages import Message, ReasoningPart, TextPart
from entracte_server.models import ProviderSettings
from entracte_server.models.openai_request import chat_messages
from entracte_server.models.reasoning import ThinkTags
from tests.models.answers import STOP, assemble
from tests.models.support import Outcome, choice, text

ROUTER = ProviderSettings("router", base_url="http://x", reasoning_back="reasoning_details")


def detail(words: str | None = None, **more: Any) -> dict[str, Any]:
    kind = {"type": "reasoning.text", "index": 0, "format": "f1"}
    return {**kind, **({} if words is None else {"text": words}), **more}


def as_parts(outcome: Outcome) -> tuple[ReasoningPart, ...]:
    """What a reader makes of the reasoning blocks: one part each."""
    parts = []
    for end in outcome.of(ReasoningEnd):
        deltas = [event for event in outcome.events if getattr(event, "id", None) == end.id]
        parts.append(
            ReasoningPart(
                text="".join(getattr(event, "text", "") for event in deltas),
                signature=next((e.signature for e in deltas if isinstance(e, ReasoningSignature)), None),
                redacted=next((e.data for e in deltas if isinstance(e, RedactedReasoning)), None),
                provider_metadata=end.provider_metadata,
            )
        )
    return tuple(parts)


def sent_back(outcome: Outcome) -> Any:
    """The details of the next request's assistant message."""
    message = Message("assistant", (*as_parts(outcome), TextPart(outcome.text)))
    return chat_messages([message], ROUTER)[0].get("reasoning_details")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_either_field(field: str) -> None:
    outcome = assemble([choice({field: "Let "}), choice({field: "me"}), *text("Yes"), STOP])
    assert (outcome.reasoning, outcome.text) == ("Let me", "Yes")
    assert outcome.of(ReasoningEnd)[0].provider_metadata is None


def test_nothing_is_shown_twice() -> None:
    outcome = assemble(
        [
            choice({"reasoning": "Let ", "reasoning_content": "Let ", "reasoning_details": [detail("Let ")]}),
            choice({"reasoning": "me", "reasoning_details": [detail("me")]}),
            choice({"reasoning_details": [detail(signature="sig")]}),
            *text("Yes"),
            choice({"reasoning_details": [detail("Let me", index=7)]}),
            STOP,
        ]
    )
    assert outcome.reasoning == "Let me"
    assert [one.signature for one in outcome.of(ReasoningSignature)] == ["sig"]


def test_details_alone_are_shown() -> None:
    outcome = assemble(
        [
            choice({"reasoning_details": [detail("Let "), None, "x"]}),
            choice({"reasoning_details": [detail("me")], "reasoning": None}),
            choice({"reasoning_details": [detail("")]}),
            *text("Yes"),
            STOP,
        ]
    )
    assert outcome.reasoning == "Let me"
    assert len(outcome.of(ReasoningEnd)) == 1


def test_signed_thinking_goes_back_as_it_was() -> None:
    outcome = assemble(
        [
            choice({"reasoning": "Let ", "reasoning_details": [detail("Let ")]}),
            choice({"reasoning": "me", "reasoning_details": [detail("me", id="r1")]}),
            choice({"reasoning_details": [detail(signature="sig")]}),
            *text("Yes"),
            STOP,
        ]
    )
    assert sent_back(outcome) == [detail("Let me", id="r1", signature="sig")]
    metadata = outcome.of(ReasoningEnd)[0].provider_metadata
    assert metadata is not None
    assert "Let me" not in metadata


def test_encrypted_thinking_goes_back_as_it_was() -> None:
    secret = {"type": "reasoning.encrypted", "data": "AbC=", "id": "rs_1", "index": 0, "format": None}
    summary = {"type": "reasoning.summary", "summary": "Thought.", "id": "rs_1", "index": 0}
    outcome = assemble([choice({"reasoning_details": [summary, secret]}), *text("Yes"), STOP])
    assert outcome.reasoning == "Thought."
    assert [one.data for one in outcome.of(RedactedReasoning)] == ["AbC="]
    assert sent_back(outcome) == [summary, {k: v for k, v in secret.items() if v is not None}]
    alone = assemble([choice({"reasoning_details": [secret]}), *text("Yes"), STOP])
    assert alone.reasoning == ""
    assert sent_back(alone) == [{k: v for k, v in secret.items() if v is not None}]


def test_several_records_stay_several() -> None:
    outcome = assemble(
        [
            choice({"reasoning_details": [detail("a", index=0), detail("b", index=1)]}),
            choice({"reasoning_details": [detail("c", index=1, id="x"), detail("d", index=1, id="y")]}),
            *text("-"),
            choice({"reasoning_details": [detail("later")]}),
            STOP,
        ]
    )
    assert outcome.reasoning == "abcdlater"
    assert sent_back(outcome) == [
        detail("a", index=0),
        detail("bc", index=1, id="x"),
        detail("d", index=1, id="y"),
        detail("later"),
    ]


def test_thinking_of_other_sources_goes_back_too() -> None:
    parts = (ReasoningPart("Hm", signature="s"), ReasoningPart("", redacted="zzz"), ReasoningPart(""))
    message = chat_messages([Message("assistant", (*parts, TextPart("Hi")))], ROUTER)[0]
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "zzz"},
    ]


@pytest.mark.parametrize(
    ("content", "reasoning", "answer"),
    [
        ("<think>Hm</think>Yes", "Hm", "Yes"),
        ("\n<think>\nHm\n</think>\n\nYes", "Hm\n", "Yes"),
        ("Yes <think>no</think>", "", "Yes <think>no</think>"),
        ("<think>Hm</think>Yes <think>", "Hm", "Yes <think>"),
        ("<think>a < b </th </think>", "a < b </th ", ""),
        ("<think>cut of", "cut of", ""),
        ("<think>cut </thi", "cut </thi", ""),
        ("<thi", "", "<thi"),
        ("<thinking>", "", "<thinking>"),
        ("<think></think>Yes", "", "Yes"),
        ("  Yes", "", "  Yes"),
        ("", "", ""),
    ],
)
def test_tags(content: str, reasoning: str, answer: str) -> None:
    for size in (1, 2, 3, 5, 100):
        pieces = [content[i : i + size] for i in range(0, len(content), size)]
        outcome = assemble([*text(*pieces), STOP], think_tags=True)
        assert (outcome.reasoning, outcome.text) == (reasoning, answer)
    outcome = assemble([*text(content), STOP])
    assert (outcome.reasoning, outcome.text) == ("", content)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "think", ">", "a", "\n", "</"]), max_size=8))
def test_tags_in_any_pieces(pieces: list[str]) -> None:
    def lifted(parts: list[str]) -> tuple[str, str]:
        tags = ThinkTags()
        found = [pair for part in parts for pair in tags.feed(part)] + list(tags.flush())
        return "".join(t for is_, t in found if is_), "".join(t for is_, t in found if not is_)

    whole = "".join(pieces)
    assert lifted(list(whole)) == lifted(pieces) == lifted([whole])


def test_metadata_is_json() -> None:
    outcome = assemble([choice({"reasoning_details": [detail("a\ud83c", signature="s")]}), *text("x"), STOP])
    metadata = outcome.of(ReasoningEnd)[0].provider_metadata
    assert metadata is not None
    assert json.loads(metadata)["reasoning_details"][0]["signature"] == "s"
