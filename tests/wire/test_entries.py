"""Entries in a row: cutting them up and leaving some out without touching the others."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte.v1 import agent_service_pb2, chunk_pb2
from entracte_server.domain import chunks as d
from entracte_server.domain.chunks import Payload
from entracte_server.wire import codec
from entracte_server.wire.codec import ChunkEncoder
from tests.wire.payloads import payloads

EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)

EDGES = [127, 128, 16_383, 16_384, 2**21, 2**28, 2**31, 2**32 - 1, 2**32, 2**53, 2**63, 2**64 - 1]
"""Numbers around which a varint grows by a byte or another language's integers end."""

BATCHES = st.lists(
    payloads() | st.integers(0, 400).map(lambda size: d.TextDelta("t", "x" * size)), max_size=12
)
FIRSTS = st.integers(1, 2**63) | st.sampled_from([edge - 3 for edge in EDGES if edge < 2**64 - 1])


def chunks_in(entries: bytes) -> list[chunk_pb2.Chunk]:
    """What protobuf makes of entries."""
    return list(agent_service_pb2.StreamResponse.FromString(entries).chunks)


def encoded(made: list[Payload], first: int = 1) -> list[bytes]:
    """The entry of each payload, by an encoder of its own."""
    return [ChunkEncoder("run", 1, 1).encode([p], first + i, 1) for i, p in enumerate(made)]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    "payload", [d.TextDelta("t", "x"), d.ReasoningDelta("r", "x"), d.Abort(), d.Custom("n", "1")]
)
def test_sequences_beyond_every_edge(edge: int, payload: Payload) -> None:
    """A run may have any number of chunks: sequences are right on both sides of each edge."""
    first = edge - 2
    entries = ChunkEncoder("run", 1, 1).encode([payload] * 3, first, 1)
    wanted = [first, first + 1, first + 2]
    assert [chunk.sequence for chunk in chunks_in(entries)] == wanted
    assert [chunk.sequence for chunk in codec.decode(entries)] == wanted


@EXAMPLES
@given(BATCHES, FIRSTS, st.data())
def test_a_reader_gets_what_comes_after_its_position(
    made: list[Payload], first: int, data: st.DataObject
) -> None:
    """Without the first n entries: the same as parsing all and keeping those after n, and the bytes
    of what is kept are those that were there."""
    single = encoded(made, first)
    entries = b"".join(single)
    count = data.draw(st.integers(0, len(made)))
    kept = codec.without_first(entries, count)
    after = first + count - 1
    assert chunks_in(kept) == [chunk for chunk in chunks_in(entries) if chunk.sequence > after]
    assert kept == b"".join(single[count:])
    assert entries.endswith(kept)


@pytest.mark.parametrize("count", [0, -1, -1000])
def test_a_reader_at_or_before_the_first_entry_gets_all(count: int) -> None:
    """A reader whose position is before the row leaves nothing out."""
    entries = b"".join(encoded([d.TextDelta("t", "x")] * 3))
    assert codec.without_first(entries, count) == entries


@EXAMPLES
@given(BATCHES, st.integers(0, 2000))
def test_pieces_are_whole_in_order_and_small(made: list[Payload], limit: int) -> None:
    """Pieces, one after another, are the input; each is a message of whole entries; one is larger
    than the limit only where it is a single entry that is; none is empty unless all is."""
    single = encoded(made)
    entries = b"".join(single)
    pieces = codec.split(entries, limit)
    assert b"".join(pieces) == entries
    at = 0
    for piece in pieces:
        inside = chunks_in(piece)
        assert piece == b"".join(single[at : at + len(inside)])
        assert len(piece) <= limit or len(inside) == 1
        assert piece or not entries
        at += len(inside)
    assert at == len(made)


@EXAMPLES
@given(BATCHES, st.integers(1, 2000))
def test_no_piece_is_smaller_than_it_must_be(made: list[Payload], limit: int) -> None:
    """The next entry goes into a piece while there is room."""
    pieces = codec.split(b"".join(encoded(made)), limit)
    for piece, following in pairwise(pieces):
        head = len(following) - len(codec.without_first(following, 1))
        assert len(piece) + head > limit


@pytest.mark.parametrize("slack", [-1, 0, 1])
def test_the_limit_itself_is_allowed(slack: int) -> None:
    """Two entries of exactly the limit are one piece, also where more follow; with a byte less of room
    they are two."""
    single = encoded([d.TextDelta("t", letter * 300) for letter in "abcd"])
    limit = len(single[0]) + len(single[1]) + slack
    for count in (2, 4):
        pairs = [single[i] + single[i + 1] for i in range(0, count, 2)]
        pieces = codec.split(b"".join(single[:count]), limit)
        assert pieces == (single[:count] if slack < 0 else pairs)


def test_one_large_entry_among_small_ones_is_a_piece_of_its_own() -> None:
    """An entry beyond the limit is not cut, and does not take its neighbours with it."""
    small, large = d.TextDelta("t", "x"), d.TextDelta("t", "x" * 100_000)
    single = encoded([small, small, large, small, large])
    pieces = codec.split(b"".join(single), 1000)
    assert pieces == [b"".join(single[:2]), *single[2:]]
