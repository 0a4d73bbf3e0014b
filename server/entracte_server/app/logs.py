"""Structured logs on standard error: one JSON object a line, never what messages say.

Lines are written by a thread of their own: a reader of the log that falls asleep must not stop the
server. When it is too far behind, lines are dropped, and their number is logged once it goes on.
"""

import logging
import queue
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


class LineWriter:
    """Writes lines to a stream from a daemon thread. What structlog calls a logger."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: queue.Queue[bytes] = queue.Queue(BACKLOG)
        self._dropped = 0
        threading.Thread(target=self._write, name="entracte-log", daemon=True).start()

    def msg(self, line: bytes | str) -> None:
        """Have a line written; never waits."""
        try:
            self._lines.put_nowait(line if isinstance(line, bytes) else line.encode())
        except queue.Full:
            self._dropped += 1

    debug = info = warning = error = critical = exception = msg

    def flush(self, seconds: float) -> None:
        """Wait until what was logged so far is written, at most `seconds`."""
        end = time.monotonic() + seconds
        while self._lines.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.01)

    def _write(self) -> None:
        held: bytes | None = None
        while True:
            lines = [self._lines.get() if held is None else held]
            held = None
            dropped, self._dropped = self._dropped, 0
            note = b'{"event":"log_lines_dropped","count":%d}\n' % dropped if dropped else b""
            size = len(note) + len(lines[0]) + 1
            # Several at once, but no more than a pipe takes whole: other workers may write to it too.
            while held is None and not self._lines.empty():
                line = self._lines.get()
                size += len(line) + 1
                if size <= select.PIPE_BUF:
                    lines.append(line)
                else:
                    held = line
            try:
                self._stream.write(note + b"\n".join(lines) + b"\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads the log any more: go on without
                continue
            finally:
                for _ in lines:
                    self._lines.task_done()


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
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    return writer
