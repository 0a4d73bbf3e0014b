"""Chunks as bytes and back: every class, every field, every text."""

from typing import Any, get_args

import msgspec
import pytest
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte.v1 import agent_service_pb2, chunk_pb2, result_pb2, run_service_pb2
from entracte_server.domain import chunks as d
from entracte_server.domain.chunks import Chunk, PathElement, Payload
from entracte_server.wire import codec
from entracte_server.wire.codec import ChunkEncoder
from tests.wire.payloads import (
    FIELDS,
    NOT_MADE_YET,
    NOT_SENT,
    PATHS,
    PAYLOADS,
    TEXTS,
    as_sent,
    expected,
    field_of,
    payloads,
    records,
)

EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)

NUMBERS = st.integers(0, 2**32 - 1)
TIMES = st.integers(0, 253_402_300_799_999)
"""Milliseconds up to the last timestamp of protobuf, in the year 9999."""


def chunks_in(entries: bytes) -> list[chunk_pb2.Chunk]:
    """What protobuf makes of entries."""
    return list(agent_service_pb2.StreamResponse.FromString(entries).chunks)


def entry(chunk: chunk_pb2.Chunk) -> bytes:
    """What protobuf makes of a chunk in a response."""
    return agent_service_pb2.StreamResponse(chunks=[chunk]).SerializeToString()


# ---- every class and every field ----


def test_every_payload_class_has_a_field_of_the_contract_and_the_other_way_round() -> None:
    """Each payload class is one field of the oneof, and each field is made by one class, but for
    those that are named as not made yet."""
    names = [field_of(cls) for cls in PAYLOADS]
    assert len(set(names)) == len(names)
    assert set(names) == set(FIELDS) - NOT_MADE_YET
    assert set(FIELDS) >= NOT_MADE_YET


@pytest.mark.parametrize("cls", PAYLOADS, ids=lambda cls: cls.type)
def test_the_fields_of_a_payload_are_those_of_its_message(cls: type[Payload]) -> None:
    """No field of a class is silently left out and no field of its message never set."""
    message = FIELDS[field_of(cls)].message_type
    assert message is not None
    ours = {field.name for field in msgspec.structs.fields(cls)}
    assert ours - NOT_SENT.get(cls, set()) == set(message.fields_by_name)


@pytest.mark.parametrize(
    ("words", "enum"),
    [
        (get_args(d.FinishReason), result_pb2.FinishReason.DESCRIPTOR),
        (get_args(d.StopCause), result_pb2.StopCause.DESCRIPTOR),
        (get_args(d.PendingKind), chunk_pb2.PendingCallKind.DESCRIPTOR),
        (get_args(d.Verb), chunk_pb2.DecisionVerb.DESCRIPTOR),
        (get_args(d.ChunkSource), chunk_pb2.ChunkSource.DESCRIPTOR),
    ],
    ids=["finish reason", "stop cause", "kind", "verb", "source"],
)
def test_every_word_is_a_value_of_its_enumeration(words: tuple[str, ...], enum: EnumDescriptor) -> None:
    """The words of the domain are the values of the contract, all of them and no others."""
    [prefix] = [value.name.removesuffix("UNSPECIFIED") for value in enum.values if not value.number]
    values = {v.name.removeprefix(prefix).lower().replace("_", "-") for v in enum.values if v.number}
    assert set(words) == values


# ---- what the encoder writes ----


@pytest.mark.parametrize("cls", PAYLOADS, ids=lambda cls: cls.type)
@settings(EXAMPLES, max_examples=15)
@given(data=st.data())
def test_every_class_is_sent_as_the_contract_says_and_comes_back(
    cls: type[Payload], data: st.DataObject
) -> None:
    """Entry, message and record agree: protobuf reads from the entry exactly the chunk that was
    meant, nothing in it is unknown, and `decode` gives the payload back."""
    payload = data.draw(records(cls))
    run_id, path = data.draw(TEXTS), data.draw(PATHS)
    step, attempt, time = data.draw(NUMBERS), data.draw(NUMBERS), data.draw(TIMES)
    entries = ChunkEncoder(run_id, step, attempt, path).encode([payload], 7, time)

    [read] = chunks_in(entries)
    wanted = expected(
        payload, run_id=run_id, sequence=7, emit_time=time, step=step, attempt=attempt, path=path
    )
    assert read == wanted
    assert read.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)
    assert not UnknownFieldSet(read)  # type: ignore[no-untyped-call,unused-ignore]

    [chunk] = codec.decode(entries)
    assert (chunk.run_id, chunk.sequence, chunk.emit_time) == (run_id, 7, time)
    assert (chunk.step, chunk.attempt, chunk.agent_path) == (step, attempt, path)
    assert chunk.payload == as_sent(payload)
    assert chunk.ignorable == wanted.ignorable
    assert chunk.source == chunk_pb2.ChunkSource.Name(wanted.source).removeprefix("CHUNK_SOURCE_").lower()


@EXAMPLES
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["t1", "t2", "", "é", "x" * 200]), TEXTS)))
def test_deltas_are_what_protobuf_would_write(deltas: list[tuple[bool, str, str]]) -> None:
    """The short way for deltas, block ids kept from one to the next and over calls, says the same as
    a message object, field by field, whatever follows what."""
    made: list[Payload] = [
        d.TextDelta(block, text) if plain else d.ReasoningDelta(block, text) for plain, block, text in deltas
    ]
    encoder = ChunkEncoder("run", 2, 3, (PathElement("sub", "c1"),))
    half = len(made) // 2
    entries = encoder.encode(made[:half], 1, 5) + encoder.encode(made[half:], half + 1, 6)

    read = chunks_in(entries)
    assert len(read) == len(made)
    for number, (chunk, payload) in enumerate(zip(read, made, strict=True), 1):
        wanted = expected(
            payload,
            sequence=number,
            emit_time=5 if number <= half else 6,
            step=2,
            attempt=3,
            path=(PathElement("sub", "c1"),),
        )
        for field in chunk_pb2.Chunk.DESCRIPTOR.fields:
            assert getattr(chunk, field.name) == getattr(wanted, field.name), field.name
            if field.has_presence:
                name: Any = field.name
                assert chunk.HasField(name) == wanted.HasField(name), name
        assert entry(chunk) == entry(wanted)


@EXAMPLES
@given(st.lists(payloads(), min_size=1, max_size=8), st.integers(1, 2**40))
def test_a_batch_is_its_chunks_one_after_another(made: list[Payload], first: int) -> None:
    """Chunks encoded together are, byte for byte, those encoded one by one, with their numbers
    running on; what precedes a chunk leaves no trace in it."""
    together = ChunkEncoder("run", 1, 1).encode(made, first, 9)
    single = [ChunkEncoder("run", 1, 1).encode([p], first + i, 9) for i, p in enumerate(made)]
    assert together == b"".join(single)
    assert [chunk.sequence for chunk in chunks_in(together)] == list(range(first, first + len(made)))


def test_entries_are_the_chunks_of_both_streams() -> None:
    """`Stream` and `WatchRun` carry chunks in the same field, so that stored bytes serve both."""
    ours = agent_service_pb2.StreamResponse.DESCRIPTOR.fields_by_name["chunks"]
    theirs = run_service_pb2.WatchRunResponse.DESCRIPTOR.fields_by_name["chunks"]
    assert ours.number == theirs.number
    assert ours.message_type is theirs.message_type


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21])
def test_texts_of_every_length(size: int) -> None:
    """Lengths are written in one to four bytes; none is off by one where it grows."""
    for text in ("x" * size, "é" * (size // 2) + "\0" * (size % 2)):
        for payload in (
            d.TextDelta("t", text),
            d.ReasoningDelta("r", text),
            d.TextDelta(text, "t"),
            d.ToolCallDelta("c", text, "tool"),
            d.ToolResult("c", "tool", None, text),
        ):
            entries = ChunkEncoder("run", 1, 1).encode([payload, payload], 1, 1)
            assert chunks_in(entries) == [
                expected(payload, sequence=number, emit_time=1) for number in (1, 2)
            ]
            assert [chunk.payload for chunk in codec.decode(entries)] == [payload, payload]


# ---- messages ----


@EXAMPLES
@given(payloads(), NUMBERS, NUMBERS, TIMES, TEXTS)
def test_a_chunk_and_its_message(payload: Payload, step: int, attempt: int, time: int, run_id: str) -> None:
    """`to_message` makes the contract's message, without a time where there is none, and
    `from_message` takes it back."""
    wanted = expected(payload, run_id=run_id, sequence=4, emit_time=time or None, step=step, attempt=attempt)
    source = codec.SOURCES.texts[wanted.source]
    chunk = Chunk(run_id, 4, time, step, attempt, payload, source, (), wanted.ignorable)
    message = codec.to_message(chunk)
    assert message == wanted
    assert codec.from_message(message) == msgspec.structs.replace(chunk, payload=as_sent(payload))


@EXAMPLES
@given(payloads(), PATHS)
def test_what_was_read_from_entries_can_be_made_a_message_again(
    payload: Payload, path: tuple[PathElement, ...]
) -> None:
    """Decoding an entry, making it a message and decoding that changes nothing."""
    [chunk] = codec.decode(ChunkEncoder("run", 1, 2, path).encode([payload], 3, 1234))
    assert codec.from_message(codec.to_message(chunk)) == chunk


@pytest.mark.parametrize("name", [*sorted(NOT_MADE_YET), ""])
def test_a_payload_of_another_version_is_refused(name: str) -> None:
    """A chunk whose payload this version does not know, or that has none, is no chunk: ValueError."""
    message = chunk_pb2.Chunk(run_id="run", sequence=1, source=chunk_pb2.CHUNK_SOURCE_AGENT)
    if name:
        getattr(message, name).SetInParent()
    with pytest.raises(ValueError, match="unknown chunk payload"):
        codec.from_message(message)
