"""From gRPC statuses to errors."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc.aio
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from entracte import _errors
from entracte._errors import EntracteError, FieldViolation
from entracte._outcomes import duration_of

DOMAIN = "entracte.dev"


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _classes(root: type[EntracteError]) -> Iterator[type[EntracteError]]:
    for cls in root.__subclasses__():
        if cls.__module__ == _errors.__name__:
            yield cls
            yield from _classes(cls)


_BY_NAME = {cls.__name__: cls for cls in _classes(EntracteError)}
_BY_CODE = {cls.code: cls for cls in EntracteError.__subclasses__() if cls is not _errors.StreamError}


def error_of(failure: grpc.aio.AioRpcError) -> EntracteError:
    """The error for a call that ended with a status other than OK."""
    code = failure.code().name
    reason, metadata = "", {}
    violations: list[FieldViolation] = []
    retry_after: timedelta | None = None
    for detail in _details(failure):
        if isinstance(detail, error_details_pb2.ErrorInfo):
            if detail.domain == DOMAIN:
                reason = detail.reason
            metadata.update(detail.metadata)
        elif isinstance(detail, error_details_pb2.BadRequest):
            violations += [FieldViolation(v.field, v.description) for v in detail.field_violations]
        else:
            retry_after = duration_of(detail.retry_delay)
    return _class_of(code, reason)(
        failure.details() or "",
        reason=reason,
        code=code,
        metadata=metadata,
        violations=tuple(violations),
        retry_after=retry_after,
    )


def _class_of(code: str, reason: str) -> type[EntracteError]:
    if not reason and code == "UNAVAILABLE":
        # Every status of the server has a reason: this one was made up by the transport.
        return _errors.ServerUnreachable
    base = _BY_CODE.get(code, EntracteError)
    named = _BY_NAME.get(_camel(reason), base)
    return named if issubclass(named, base) else base


_DETAILS: tuple[type[Any], ...] = (
    error_details_pb2.ErrorInfo,
    error_details_pb2.BadRequest,
    error_details_pb2.RetryInfo,
)


def _details(failure: grpc.aio.AioRpcError) -> Iterator[Any]:
    try:
        status = rpc_status.from_call(failure)
    except ValueError:
        return  # the details contradict the status, so they are not of this call
    if status is None:
        return
    for packed in status.details:
        for kind in _DETAILS:
            if packed.Is(kind.DESCRIPTOR):
                detail = kind()
                packed.Unpack(detail)
                yield detail
