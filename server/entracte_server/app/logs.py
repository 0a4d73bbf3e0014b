"""Structured logs on standard error: one JSON object a line, never what messages say.

Lines are written by a thread of their own: a reader of the log that falls asleep must not stop the
server. When it is too far behind, lines are dropped, and their number is logged once it goes on.
"""

import collections
import contextlib
import logging
import select
import sys
import threading
import time
from typing import Any, BinaryIO

import msgspec
import structlog

from entracte_server.rpc.call import current

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


BACKLOG = 10_000
"""Lines that may wait to be written."""

PAUSE = 0.02
"""Seconds that a line may wait for others. What dies with the process is what it logged last."""


class LineWriter:
    """Writes lines to a stream from a daemon thread, those of `PAUSE` seconds together: waking the thread
    for each would cost more than making the line. What structlog calls a logger."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: collections.deque[bytes] = collections.deque()
        self._some = threading.Event()
        self._writing = False
        self._dropped = 0
        threading.Thread(target=self._write, name="entracte-log", daemon=True).start()

    def msg(self, line: bytes | str) -> None:
        """Have a line written; never waits."""
        if len(self._lines) >= BACKLOG:
            self._dropped += 1
            return
        self._lines.append(line if isinstance(line, bytes) else line.encode())
        if not self._some.is_set():
            self._some.set()

    debug = info = warning = error = critical = exception = msg

    def flush(self, seconds: float) -> None:
        """Wait until what was logged so far is written, at most `seconds`."""
        end = time.monotonic() + seconds
        while (self._lines or self._writing) and time.monotonic() < end:
            time.sleep(0.01)

    def _write(self) -> None:
        while True:
            self._some.wait()
            time.sleep(PAUSE)
            self._some.clear()
            self._writing = True
            while self._lines:
                self._write_some()
            self._writing = False

    def _write_some(self) -> None:
        """No more at once than a pipe takes whole: other workers may write to it too."""
        dropped, self._dropped = self._dropped, 0
        lines = [b'{"event":"log_lines_dropped","count":%d}' % dropped] if dropped else []
        size = sum(map(len, lines)) + len(lines)
        while self._lines and (not lines or size + len(self._lines[0]) < select.PIPE_BUF):
            lines.append(self._lines.popleft())
            size += len(lines[-1]) + 1
        # Nobody may read the log any more: then it goes on without.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(b"\n".join(lines) + b"\n")
            self._stream.flush()


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


class Forward(logging.Handler):
    """Brings what libraries and our lower layers log in the standard way to the same lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        level = min(record.levelno // 10 * 10, logging.CRITICAL)  # libraries may have levels of their own
        try:
            structlog.get_logger().log(
                level, record.getMessage(), logger=record.name, exc_info=record.exc_info
            )
        except Exception:
            self.handleError(record)


def _is_news(record: logging.LogRecord) -> bool:
    """False for what gRPC logs as an error when a client goes at the very moment its RPC is ended."""
    error = record.exc_info[0] if record.exc_info else None
    return error is None or error.__name__ != "ExecuteBatchError"


def configure(level: str, form: str, *, worker: int | None = None) -> LineWriter:
    """Set logging up for the process; `flush` the writer before the process ends. `worker` is the
    number that each line of a worker process bears."""

    def add_worker(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
        event.setdefault("worker", worker)
        return event

    shared: list[Any] = [
        *([add_worker] if worker is not None else []),
        structlog.contextvars.merge_contextvars,
        _add_call,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    writer = LineWriter(sys.stderr.buffer)
    if form == "json":
        shared += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_dumps)]
    else:
        # The other ways to show a traceback take seconds, and write down the values of variables.
        shared.append(
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[Forward()])
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
    return writer
