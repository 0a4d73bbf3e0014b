"""Checks of single request fields. Each raises `Refusal` naming the field and the fix."""

import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from entracte.v1 import json_pb2
from entracte_server.agents import schemas
from entracte_server.domain import json_text
from entracte_server.domain.errors import Reason, Refusal, invalid
from entracte_server.domain.memory import SUB_AGENT
from entracte_server.rpc.call import current
from entracte_server.store.base import RequestKey

_RUN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_ID = 256
MAX_THREAD_ID = 128
MAX_TITLE = 1000
"""Characters."""

MAX_METADATA = 64 * 1024
"""Bytes of what is kept beside a thread."""

DEFAULT_PAGE = 50
MAX_PAGE = 1000


def unsupported(field: str) -> Refusal:
    """The refusal of an option this server does not know how to honour."""
    return Refusal("OPTION_UNSUPPORTED", f"{field} is not supported by this server.", field=field)


def identifier(field: str, value: str, *, required: bool = True) -> str:
    """An id as clients may send it: no NUL, no control characters, at most `MAX_ID` characters."""
    if not value:
        if required:
            raise invalid(field, "is required")
        return value
    if len(value) > MAX_ID:
        raise invalid(field, f"is longer than {MAX_ID} characters")
    if not value.isprintable():
        raise invalid(field, "has characters that cannot be printed (NUL, line breaks, ...)")
    return value


def resource_id(field: str, value: str) -> str:
    """Whose thread it is to be: anybody's but a sub-agent's."""
    if value.startswith(SUB_AGENT):
        raise invalid(field, f"begins with {SUB_AGENT!r}, as only those of sub-agents do: name another")
    return identifier(field, value)


def run_id(field: str, value: str) -> str:
    """The id of a new run; may be empty."""
    if value and not _RUN_ID.fullmatch(value):
        raise invalid(field, "use 1 to 128 characters of letters, digits, '-', '_', '.', ':'")
    return value


def thread_id(field: str, value: str, *, required: bool = True) -> str:
    """The id of a thread that may have to be made."""
    if len(value) > MAX_THREAD_ID:
        raise invalid(field, f"is longer than {MAX_THREAD_ID} characters")
    return identifier(field, value, required=required)


def title(field: str, value: str) -> str:
    """The title of a thread; may be empty."""
    if len(value) > MAX_TITLE:
        raise invalid(field, f"is longer than {MAX_TITLE} characters")
    return value


def text(field: str, value: str, limit: int) -> str:
    """A text of at most `limit` bytes."""
    if len(value) > limit or len(value.encode()) > limit:
        raise invalid(field, f"is longer than {limit} bytes")
    return value


def json_value(field: str, message: json_pb2.Json) -> tuple[str, Any]:
    """A JSON field that is present: its text and value."""
    try:
        return message.text, json_text.parse_strict(message.text)
    except json_text.InvalidJson as error:
        raise invalid(f"{field}.text", str(error), "JSON_INVALID") from None


def json_object(
    field: str, message: json_pb2.Json, reason: Reason = "REQUEST_INVALID"
) -> tuple[str, dict[str, Any]]:
    """A JSON field that must hold an object; `reason` is for JSON that does not."""
    raw, value = json_value(field, message)
    if not isinstance(value, dict):
        raise invalid(f"{field}.text", "must be a JSON object", reason)
    return raw, value


def metadata(field: str, message: json_pb2.Json) -> str:
    """What is kept beside a thread: an object."""
    text(f"{field}.text", message.text, MAX_METADATA)
    return json_object(field, message)[0]


def any_schema(field: str, message: json_pb2.Json) -> tuple[str, dict[str, Any]]:
    """A JSON Schema of any kind of value."""
    raw, value = json_object(field, message, "SCHEMA_INVALID")
    try:
        schemas.compile_schema(raw)
    except schemas.InvalidSchema as error:
        raise invalid(f"{field}.text", str(error), "SCHEMA_INVALID") from None
    return raw, value


def schema(field: str, message: json_pb2.Json) -> str:
    """A JSON Schema of an object."""
    raw, value = any_schema(field, message)
    if value.get("type", "object") != "object":
        raise invalid(f"{field}.text", "must be a schema of type object", "SCHEMA_INVALID")
    return raw


def provider_options(field: str, message: json_pb2.Json) -> str:
    """Options by provider: an object of objects."""
    raw, value = json_object(field, message)
    for provider, entries in value.items():
        if not isinstance(entries, dict):
            raise invalid(f"{field}.text", f"{provider[:80]!r} must be an object")
    return raw


def duration(field: str, message: Duration, least: float, most: float) -> float:
    """A time in seconds, from `least` to `most`."""
    seconds, nanos = message.seconds, message.nanos
    if abs(nanos) >= 10**9 or seconds * nanos < 0:
        raise invalid(field, "is not a valid Duration")
    whole = seconds * 10**9 + nanos
    if not least * 10**9 <= whole <= most * 10**9:
        raise invalid(field, f"must be from {least:g} s to {most:g} s")
    return whole / 10**9


def request_key(request: Any, *, ignoring: tuple[str, ...] = ()) -> RequestKey | None:
    """How a mutating request is recognised when it is repeated; None when it has no id."""
    value: str = request.request_id
    if not value:
        return None
    if len(value) > 128 or not value.isprintable():
        raise invalid("request_id", "use at most 128 printable characters")
    body = type(request)()
    body.CopyFrom(request)
    for name in ("request_id", "wait", *ignoring):
        if name in body.DESCRIPTOR.fields_by_name:
            body.ClearField(name)
    call = current.get()
    return RequestKey(
        tenant=call.principal.tenant,
        principal=call.principal.name,
        method=call.method,
        request_id=value,
        body_hash=hashlib.sha256(body.SerializeToString(deterministic=True)).digest(),
    )


def page_size(value: int) -> int:
    """How many items a page has."""
    if value < 0:
        raise invalid("page_size", "must not be negative")
    return min(value or DEFAULT_PAGE, MAX_PAGE)


def _binding(request: Message) -> str:
    """What a page token is bound to: the list and its filters."""
    body = type(request)()
    body.CopyFrom(request)
    body.ClearField("page_token")
    body.ClearField("page_size")
    raw = request.DESCRIPTOR.full_name.encode() + b"\0" + body.SerializeToString(deterministic=True)
    return hashlib.sha256(raw).hexdigest()[:16]


def page_token(request: Message, cursor: str) -> str:
    """The token that goes on with this list at `cursor`; empty for none."""
    if not cursor:
        return ""
    return urlsafe_b64encode(json.dumps([1, _binding(request), cursor]).encode()).decode()


def page_cursor(request: Any) -> str:
    """The cursor in a request's page token; empty at the start."""
    if not request.page_token:
        return ""
    try:
        version, binding, cursor = json.loads(urlsafe_b64decode(request.page_token.encode()))
    except (ValueError, TypeError, RecursionError):
        version = binding = cursor = None
    if version != 1 or binding != _binding(request) or not isinstance(cursor, str):
        raise bad_page_token()
    return cursor


def bad_page_token() -> Refusal:
    """The refusal of a page token that is not one of this list."""
    return invalid(
        "page_token",
        "is not a token of this list with these filters; start again without one",
        "PAGE_TOKEN_INVALID",
    )
