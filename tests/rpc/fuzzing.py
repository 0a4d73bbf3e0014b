"""Requests that hypothesis makes from the contract: messages of any content, and bytes of any kind."""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from tests.rpc.support import METHODS

_JSON_TEXTS = [
    "",
    "null",
    "{}",
    "[]",
    '{"a":1}',
    '{"type":"object"}',
    '{"type":"object","$ref":"#"}',
    '{"$schema":5}',
    '{"ok":true}',
    "NaN",
    '{"a":1,"a":2}',
    '"\\ud800"',
    "[" * 500,
    "1" * 5000,
]


def _texts(known: list[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(["", "a\0b", "x" * 300, "é", " ", "\u2028", "a/b", *known]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    )


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


def _value(field: FieldDescriptor, known: list[str], depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        if field.message_type.name == "Json":
            texts = st.one_of(st.sampled_from(_JSON_TEXTS), st.text(max_size=10).filter(_is_utf8))
            return texts.map(lambda text: GetMessageClass(field.message_type)(text=text))  # type: ignore[arg-type]
        return messages(field.message_type, known, depth + 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=40)
        return _texts(known)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.floats()
    least, most = _INTEGERS[field.cpp_type]
    near = st.sampled_from([0, 1, 2, 3, -1, 50, least, most]).filter(lambda n: least <= n <= most)
    return st.one_of(near, st.integers(least, most))


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _field(field: FieldDescriptor, known: list[str], depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return st.dictionaries(_texts(known), _value(entry["value"], known, depth), max_size=2)
    value = _value(field, known, depth)
    return st.lists(value, max_size=3) if field.is_repeated else value


def messages(descriptor: Descriptor, known: list[str], depth: int = 0) -> st.SearchStrategy[Any]:
    """Messages of a type, with some of its fields set to something. `known` are texts that exist on
    the server: ids and names."""
    kind: Any = GetMessageClass(descriptor)
    if depth > 4:
        return st.just(kind())
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in descriptor.fields:
        if field.containing_oneof is None or len(field.containing_oneof.fields) == 1:
            optional[field.name] = st.deferred(lambda f=field: _field(f, known, depth))  # type: ignore[misc]
    choices = [
        st.fixed_dictionaries(
            {},
            optional={f.name: st.deferred(lambda f=f: _field(f, known, depth)) for f in group.fields},  # type: ignore[misc]
        ).map(lambda chosen: dict(list(chosen.items())[:1]))
        for group in descriptor.oneofs
        if len(group.fields) > 1
    ]
    plain = st.fixed_dictionaries({}, optional=optional)
    return st.tuples(plain, *choices).map(lambda found: kind(**{k: v for d in found for k, v in d.items()}))


def requests(method: str, known: list[str]) -> st.SearchStrategy[bytes]:
    """The bytes of requests of an RPC."""
    found = messages(METHODS[method].input_type, known)
    return found.map(lambda message: message.SerializeToString())


@st.composite
def damaged(draw: st.DrawFn, method: str, known: list[str]) -> bytes:
    """Such bytes with some of them changed, cut out or put in."""
    data = bytearray(draw(requests(method, known)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "cut", "insert", "end"])):
            case "change" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del data[at:]
    return bytes(data)
