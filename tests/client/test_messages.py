"""Messages in all their forms, JSON of any size, records as plain data."""

import base64
import json
from dataclasses import fields
from typing import Any

import pytest

import entracte
from entracte import Client, Message, RawJson, to_dict
from entracte._chunk_codec import chunk_of
from entracte._json import dump, parse
from entracte._message_codec import message_of, to_messages
from entracte._messages import messages_from
from entracte.v1 import chunk_pb2, message_pb2
from tests.client.fake import FakeServer, js

PNG = b"\x89PNG\r\n\x1a\n rest"


def sent(value: Any) -> list[message_pb2.Message]:
    return to_messages(messages_from(value))


def text(role: message_pb2.Role.ValueType, words: str) -> message_pb2.Message:
    return message_pb2.Message(
        role=role, parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text=words))]
    )


def test_texts_and_dicts() -> None:
    user, system = message_pb2.ROLE_USER, message_pb2.ROLE_SYSTEM
    assert sent("Hi") == [text(user, "Hi")]
    assert sent(["Hi", "there"]) == [text(user, "Hi"), text(user, "there")]
    assert sent({"role": "system", "content": "Be kind"}) == [text(system, "Be kind")]
    assert sent([{"role": "user", "content": ["Hi"]}, "there"]) == [text(user, "Hi"), text(user, "there")]
    (message,) = sent({"role": "user", "content": "Hi", "id": "m1", "metadata": {"a": 1}})
    assert (message.id, message.metadata.text) == ("m1", '{"a":1}')


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "Hi"}, {"text": {"text": "Hi"}}),
        (
            {"type": "image", "image": "https://example.org/cat.png", "mime_type": "image/png"},
            {"image": {"url": "https://example.org/cat.png", "media_type": "image/png"}},
        ),
        (
            {"type": "image", "image": "data:image/png;base64,AAAA"},
            {"image": {"url": "data:image/png;base64,AAAA"}},
        ),
        ({"type": "image", "image": PNG}, {"image": {"data": PNG, "media_type": "image/png"}}),
        (
            {"type": "image", "image": base64.b64encode(PNG).decode()},
            {"image": {"data": PNG, "media_type": "image/png"}},
        ),
        (
            {"type": "image", "data": b"odd", "media_type": "image/odd"},
            {"image": {"data": b"odd", "media_type": "image/odd"}},
        ),
        (
            {"type": "file", "file": b"%PDF-1.7", "filename": "a.pdf"},
            {"file": {"data": b"%PDF-1.7", "media_type": "application/pdf", "filename": "a.pdf"}},
        ),
        (
            {"type": "file", "url": "https://example.org/a.pdf"},
            {"file": {"url": "https://example.org/a.pdf"}},
        ),
        (
            {"type": "tool-call", "tool_call_id": "c", "tool_name": "t", "args": {"z": 1, "a": 10**20}},
            {
                "tool_call": {
                    "tool_call_id": "c",
                    "tool_name": "t",
                    "args": js('{"z":1,"a":100000000000000000000}'),
                }
            },
        ),
        (
            {"type": "tool-result", "tool_call_id": "c", "tool_name": "t", "result": None, "is_error": True},
            {"tool_result": {"tool_call_id": "c", "tool_name": "t", "result": js("null"), "is_error": True}},
        ),
        (
            {"type": "reasoning", "text": "hm", "signature": "", "provider_metadata": {"a": 1}},
            {"reasoning": {"text": "hm", "signature": "", "provider_metadata": js('{"a":1}')}},
        ),
    ],
)
def test_parts(part: dict[str, Any], expected: dict[str, Any]) -> None:
    (message,) = sent({"role": "user", "content": [part]})
    assert list(message.parts) == [message_pb2.MessagePart(**expected)]
    read = message_of(message)
    assert to_messages([read]) == [message]
    assert read.parts[0].type == part["type"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "not int"),
        ([7], "a message is a text, a dict or a Message"),
        ({"role": "user"}, "content is a text or a list"),
        ({"role": "user", "content": 7}, "content is a text or a list"),
        ({"role": "user", "text": "Hi"}, "no field 'text'"),
        ({"role": "boss", "content": "Hi"}, "role must be one of system, user, assistant, tool"),
        ({"role": "user", "content": [7]}, "a text or a dict"),
        ({"role": "user", "content": [{"type": "video"}]}, "not 'video'"),
        ({"role": "user", "content": [{"type": "text", "txt": "Hi"}]}, "part of type text"),
        ({"role": "user", "content": [{"type": "image"}]}, "needs one of"),
        ({"role": "user", "content": [{"type": "image", "image": b"odd"}]}, "needs a media_type"),
        ({"role": "user", "content": [{"type": "image", "image": "not base64!"}]}, "a URL, a data URL"),
        ({"role": "user", "content": [{"type": "image", "image": PNG, "alt": "x"}]}, "no field 'alt'"),
    ],
)
def test_what_is_not_a_message_is_refused(value: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        sent(value)


async def test_messages_of_a_result_may_be_sent_again(server: FakeServer, client: Client) -> None:
    server.result.messages.extend(sent(["Hi", {"role": "assistant", "content": "Hello"}]))
    result = await client.agent("support").generate("Hi")
    await client.agent("support").generate([*result.messages, "And now?"])
    again = server.asked("Generate")[1]
    assert [message.parts[0].text.text for message in again.messages] == ["Hi", "Hello", "And now?"]
    assert isinstance(result.messages[0], Message)


def test_integers_of_any_size_survive() -> None:
    for number in (2**53 + 1, 2**64, -(10**4000)):
        assert parse(dump(number)) == number
    assert parse("1" + "0" * 6000) == 10**6000
    assert parse('[1.0, 1, 1e2, "1"]') == [1.0, 1, 100.0, "1"]
    with pytest.raises(json.JSONDecodeError):
        parse("{")


def test_json_text_is_sent_as_it_is() -> None:
    assert dump({"b": 1, "a": "köln"}) == '{"b":1,"a":"köln"}'
    assert dump(RawJson('{"n": 1.0}')) == '{"n": 1.0}'


def test_every_chunk_of_the_contract_has_its_record() -> None:
    seen = set()
    for field in chunk_pb2.Chunk.DESCRIPTOR.oneofs_by_name["payload"].fields:
        message = chunk_pb2.Chunk(run_id="r1", sequence=3, step=2, attempt=1)
        payload = getattr(message, field.name)
        payload.SetInParent()
        for inner in payload.DESCRIPTOR.fields:
            if inner.message_type is not None and inner.message_type.name == "Json":
                getattr(payload, inner.name).text = '{"a":1}'
        chunk = chunk_of(message)
        assert chunk is not None
        expected = "source" if field.name == "source_reference" else field.name.replace("_", "-")
        assert chunk.type == expected
        assert type(chunk).__doc__
        header = {field.name for field in fields(entracte.ChunkHeader)}
        own = {field.name for field in fields(chunk)} - header
        contract = {
            inner.name
            if inner.message_type is None or inner.message_type.name != "Json" or inner.name.endswith("_json")
            else f"{inner.name}_json"
            for inner in payload.DESCRIPTOR.fields
        }
        assert own == contract, chunk.type
        plain = to_dict(chunk)
        assert plain["type"] == chunk.type
        json.dumps(plain)
        seen.add(type(chunk))
    union = entracte.Chunk.__args__
    assert seen == set(union)


def test_plain_data() -> None:
    message = chunk_pb2.Chunk(run_id="r1", sequence=1, source=chunk_pb2.CHUNK_SOURCE_AGENT)
    message.tool_call_approval.args.text = '{"big":12345678901234567890}'
    message.tool_call_approval.args_digest = b"\x00\x01"
    chunk = chunk_of(message)
    assert to_dict([chunk]) == [
        {
            "type": "tool-call-approval",
            "run_id": "r1",
            "sequence": 1,
            "emit_time": None,
            "source": "agent",
            "step": 0,
            "attempt": 0,
            "agent_path": [],
            "ignorable": False,
            "tool_call_id": "",
            "tool_name": "",
            "args": {"big": 12345678901234567890},
            "pending_call_id": "",
            "args_digest": "AAE=",
            "resume_schema": None,
            "expire_time": None,
        }
    ]
    denied = chunk_pb2.Chunk()
    denied.tool_output_denied.reason = "no"
    denied.tool_output_denied.reason_json.text = "[1]"
    plain = to_dict(chunk_of(denied))
    assert (plain["reason"], plain["reason_data"]) == ("no", [1])


def test_everything_public_is_documented() -> None:
    for name in entracte.__all__:
        value = getattr(entracte, name)
        if isinstance(value, type):
            assert value.__doc__, name
            for member, inner in vars(value).items():
                if not member.startswith("_") and callable(inner):
                    assert inner.__doc__, f"{name}.{member}"
