"""Personal data and secrets: what is found, and that nothing of it gets through, wherever deltas end."""

import random
from typing import Any

import pytest

from entracte import EntracteError
from entracte_server import PiiFilter
from entracte_server.agents.hooks import RunView
from entracte_server.agents.processors import patterns
from entracte_server.processors import ReasoningDelta, StreamInfo, TextDelta, TextEnd, TextStart
from tests.processors.support import ADD, CALLED, kinds, served, shown

ARE = [
    ("email", "joe.doe+x@mail.example.co.uk"),
    ("email", "O'Neil@example.com"),
    ("card", "4111 1111 1111 1111"),
    ("card", "5500-0000-0000-0004"),
    ("card", "378282246310005"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "GB82WEST12345698765432"),
    ("ip", "192.168.0.1"),
    ("ip", "2001:db8::ff00:42:8329"),
    ("ssn", "123-45-6789"),
    ("phone", "+49 30 1234567"),
    ("phone", "+1 (415) 555-2671"),
    ("phone", "(415) 555-2671"),
    ("phone", "030 1234567"),
    ("phone", "0049 171 9876543"),
    ("key", "sk-proj-abcdefghijklmnopqrstuv"),
    ("key", "AKIAIOSFODNN7EXAMPLE"),
    ("key", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
    ("key", "xoxb-1234567890-abcdef"),
    ("key", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    ("key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow abc\ndef\n-----END RSA PRIVATE KEY-----"),
]
ARE_NOT = [
    "4111 1111 1111 1112",
    "0000 0000 0000 0000",
    "XX12 3456 7890 1234 5678",
    "999.168.0.1",
    "000-45-6789",
    "666-45-6789",
    "2024-05-06 12:30:45",
    "12:30:45",
    "version 1.2.3",
    "a@b",
    "3.14159265358979",
    "1,234,567.89",
    "the year 2024, 100 of 2000",
    "sk-short",
    "list[1::2]",
]


@pytest.mark.parametrize(("kind", "text"), ARE)
def test_what_is_found(kind: str, text: str) -> None:
    for before, after in (("", ""), ("it is ", ", you see."), ("(", ")"), ("\n", "\n"), ("«", "»")):
        [found] = patterns.find(f"{before}{text}{after}")
        assert (found.kind, found.start, found.end) == (kind, len(before), len(before) + len(text))
    assert patterns.find(text, [k for k in patterns.KINDS if k != kind]) == [] or kind in (
        "card",
        "iban",
        "ip",
    )


@pytest.mark.parametrize("text", ARE_NOT)
def test_what_is_not(text: str) -> None:
    assert patterns.find(f"it is {text} you see") == []


def test_a_long_text_takes_linear_time() -> None:
    """None of these makes the patterns step back and forth, nor is what is found compared with all else."""
    many = "a@b.co " * 30_000
    assert len(patterns.find(many)) == 30_000
    for text in ("a" * 200_000, "1 " * 100_000, "a.b" * 60_000 + "@", "A1 " * 60_000, ":" * 100_000):
        patterns.find(text)
        patterns.settled(text)


TEXT = (
    "Dear Joe, write to joe.doe@example.com or call +49 30 1234567 (or (415) 555-2671).\n"
    "Your card 4111 1111 1111 1111 and IBAN DE89 3704 0044 0532 0130 00 are stored; the key is "
    "sk-proj-abcdefghijklmnopqrstuv. THE END IS NEAR, 12 of 30 done. Naïve 漢字 👩‍👩‍👧 ip 10.0.0.1"
)
REDACTED = (
    "Dear Joe, write to [EMAIL] or call [PHONE] (or [PHONE]).\n"
    "Your card [CARD] and IBAN [IBAN] are stored; the key is "
    "[KEY]. THE END IS NEAR, 12 of 30 done. Naïve 漢字 👩‍👩‍👧 ip [IP]"
)


def deltas(text: str, sizes: list[int]) -> list[str]:
    """A text in pieces of these sizes, over and over."""
    pieces, position, index = [], 0, 0
    while position < len(text):
        size = sizes[index % len(sizes)]
        pieces.append(text[position : position + size])
        position, index = position + size, index + 1
    return pieces


async def streamed(processor: PiiFilter, pieces: list[str], kind: Any = TextDelta) -> list[str]:
    """What comes out for each piece, and at the end."""
    info = StreamInfo(RunView("r", "a", {}), 1, 1, 0)
    out = []
    for piece in pieces:
        parts = await processor.process_output_stream([kind("b", piece)], info)
        out.append("".join(part.text for part in parts))  # type: ignore[attr-defined]
    out.append("".join(part.text for part in await processor.end_output_stream(info)))  # type: ignore[attr-defined]
    return out


@pytest.mark.parametrize("sizes", [[1], [2], [3], [7], [1000], [5, 1, 40]])
async def test_it_does_not_matter_where_deltas_end(sizes: list[int]) -> None:
    for kind in (TextDelta, ReasoningDelta):
        assert "".join(await streamed(PiiFilter().bound(), deltas(TEXT, sizes), kind)) == REDACTED


async def test_nor_anywhere_else() -> None:
    """Whatever is found, between whatever else, in pieces of any size, comes out as it does in one piece."""
    rng = random.Random(7)
    words = ["the", "a", "THE", "A1", "2024", "12:30", "(see", "x)", "é", "漢字", "end.", "-", "+", "@", "\n"]
    for _ in range(300):
        parts = rng.choices([*words, *(text for _, text in ARE)], k=rng.randint(1, 12))
        text = rng.choice([" ", " ", ", "]).join(parts)
        whole = patterns.replaced(text, patterns.find(text), "[{kind}]")
        pieces = deltas(text, [rng.randint(1, 9) for _ in range(5)])
        assert "".join(await streamed(PiiFilter().bound(), pieces)) == whole, (text, pieces)


async def test_only_what_may_be_something_is_waited_for() -> None:
    out = await streamed(
        PiiFilter().bound(), ["Hello ", "there, ", "call ", "+49 30 ", "1234567 ", "now ", "ok"]
    )
    assert out == ["Hello ", "there, ", "call ", "", "", "[PHONE] now ", "", "ok"]


async def test_a_word_without_end_is_not_waited_for_forever() -> None:
    key = "sk-" + "a" * 30_000
    out = await streamed(PiiFilter().bound(), [*deltas(key, [1000]), "bbb", "b then more"])
    assert "".join(out) == "[KEY] then more"
    plain = "y" * 50_000
    out = await streamed(PiiFilter().bound(), deltas(plain, [1000]))
    assert "".join(out) == plain
    assert max(map(len, out)) < 20_000


async def test_ends_of_blocks_and_signatures() -> None:
    info = StreamInfo(RunView("r", "a", {}), 1, 1, 0)
    processor = PiiFilter().bound()
    out = await processor.process_output_stream(
        [TextStart("b"), TextDelta("b", "at a@b.example"), TextEnd("b"), TextStart("c")], info
    )
    assert out == [
        TextStart("b"),
        TextDelta("b", "at "),
        TextDelta("b", "[EMAIL]"),
        TextEnd("b"),
        TextStart("c"),
    ]


# ---- in runs ----

LEAKS = [[{"reasoning": "Joe is joe@example.com"}, {"text": "It is joe@example.com."}, ADD], [{"text": "ok"}]]


async def test_redaction() -> None:
    """On the way in, out, and in what tools return; the model and the client see the same."""

    from entracte_server import tool

    @tool
    async def add(a: int, b: int) -> dict[str, Any]:
        return {"owner": "ann@example.com", "sum": a + b, "notes": ["call 030 1234567"]}

    async with served(LEAKS, known=[PiiFilter()], tools=[add]) as it:
        result, chunks = await it.told(
            "I am ann@example.com",
            input_processors=["pii"],
            output_processors=["pii"],
            include_raw_chunks=True,
        )
        assert result.text == shown(chunks) == "It is [EMAIL].ok"
        assert result.reasoning_text == "Joe is [EMAIL]"
        assert it.asked(0) == [("user", "I am [EMAIL]")]
        assert [r.result for r in result.tool_results] == [
            {"owner": "[EMAIL]", "sum": 3, "notes": ["call [PHONE]"]}
        ]
        assert "example.com" not in repr(chunks) + repr(result)
        assert "example.com" not in repr(it.model.requests[1].messages)


async def test_blocking() -> None:
    async with served(LEAKS, known=[PiiFilter(strategy="block")]) as it:
        result, chunks = await it.told(output_processors=["pii"])
        assert result.tripwire is not None
        assert result.tripwire.reason == "The answer contains personal data or secrets: email."
        assert result.tripwire.metadata == {"kinds": ["email"]}
        assert "example.com" not in repr(chunks) + repr(result)
        assert CALLED == []
        result, _ = await it.told("mine is 4111 1111 1111 1111", input_processors=["pii"])
        assert result.tripwire is not None
        assert result.tripwire.reason == "The input contains personal data or secrets: card."
        assert len(it.model.requests) == 1


async def test_a_warning() -> None:
    async with served(LEAKS, known=[PiiFilter(strategy="warn")]) as it:
        result, chunks = await it.told(output_processors=["pii"])
        assert result.text == "It is joe@example.com.ok"
        assert result.warnings == ("The answer contains personal data or secrets: email.",)
        assert kinds(chunks)[-1] == "finish"


async def test_parameters_of_a_request() -> None:
    async with served(LEAKS, known=[PiiFilter(replacement="<{kind}>")]) as it:
        result, _ = await it.told(output_processors=[{"name": "pii", "parameters": {"kinds": ["email"]}}])
        assert result.text == "It is <EMAIL>.ok"
    async with served(LEAKS, known=[PiiFilter()]) as it:
        result, _ = await it.told(output_processors=[{"name": "pii", "parameters": {"kinds": ["card"]}}])
        assert result.text.startswith("It is joe@")
        for parameters, field in (
            ({"kinds": ["card", "shoe"]}, ".kinds.1"),
            ({"strategy": "hide"}, ".strategy"),
            ({"other": 1}, ".other"),
        ):
            with pytest.raises(EntracteError) as refused:
                await it.agent.generate("x", output_processors=[{"name": "pii", "parameters": parameters}])
            [violation] = refused.value.violations
            assert violation.field == f"options.output_processors.processors[0].parameters{field}"
