"""Structured logs on standard error: one JSON object a line, never what messages say."""

import logging
import sys
from typing import Any

import msgspec
import structlog

from entracte_server.rpc.call import current

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _dumps(value: Any, **_: Any) -> bytes:
    return msgspec.json.encode(value)


def _add_call(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """The request and the run that a line belongs to; a run's own tasks keep those of the request
    that started them."""
    call = current.get(None)
    if call is not None:
        event.setdefault("request_id", call.request_id)
        event.setdefault("run_id", call.run_id)
    return event


def configure(level: str, form: str) -> None:
    """Set logging up for the process."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_call,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    factory: Any
    if form == "json":
        shared += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_dumps)]
        factory = structlog.BytesLoggerFactory(sys.stderr.buffer)
    else:
        shared.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
        factory = structlog.PrintLoggerFactory(sys.stderr)
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
