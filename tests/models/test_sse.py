"""Event streams, however they are cut."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte_server.models.sse import Event, EventTooLarge, SseDecoder


def decode(*reads: bytes, limit: int = 1 << 20) -> list[Event]:
    decoder = SseDecoder(limit)
    events = [event for read in reads for event in decoder.feed(read)]
    return events + decoder.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a \n\n", [("", b" a ")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
        (b"data: a\r\n\ndata: b\n\r\n", [("", b"a"), ("", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b": hello\n\n:\n\ndata: a\n: between\n\n", [("", b"a")]),
        (b"event: error\ndata: a\n\n", [("error", b"a")]),
        (b"event:error\nid: 7\nretry: 3\ndata: a\n\n", [("error", b"a")]),
        (b"event: ping\n\ndata: a\n\n", [("", b"a")]),
        (b"data: {\ndata:  }\n\n", [("", b"{\n }")]),
        (b"data: \n\ndata\n\ndata:   \n\ndata: a\n\n", [("", b"a")]),
        (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
        (b"data: a\n\ndata: b", [("", b"a"), ("", b"b")]),
        (b"data: a\n\ndata: b\n", [("", b"a"), ("", b"b")]),
        (b"nothing\nat all\n\n", []),
        (b"", []),
        (b"\xef\xbb", []),
        ("data: Grüße 🌳\n\n".encode(), [("", "Grüße 🌳".encode())]),
    ],
)
def test_whole_and_byte_by_byte(stream: bytes, events: list[Event]) -> None:
    assert decode(stream) == events
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == events


PIECES = [b"data: ", b"data:", b"event: x", b": c", b"\n", b"\r\n", b"\r", b"{}", "ü🌳".encode(), b" "]


@settings(deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=40),
    bom=st.booleans(),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_the_reads_do_not_matter(pieces: list[bytes], bom: bool, cuts: list[int]) -> None:
    stream = (b"\xef\xbb\xbf" if bom else b"") + b"".join(pieces)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    reads = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert decode(*reads) == decode(stream)


def test_an_event_is_bounded() -> None:
    with pytest.raises(EventTooLarge, match="1000 bytes"):
        decode(b"data: " + b"x" * 2000, limit=1000)
    with pytest.raises(EventTooLarge):
        decode(*([b"x"] * 2000), limit=1000)


def test_the_bound_is_per_event() -> None:
    event = b"data: " + b"x" * 900 + b"\n\n"
    assert len(decode(*([event] * 50), limit=1000)) == 50


def test_one_event_in_many_reads_is_linear() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: ")
    for _ in range(200_000):
        decoder.feed(b"0123456789")
    assert len(decoder.feed(b"\n\n")[0][1]) == 2_000_000
