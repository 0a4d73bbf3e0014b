"""Logs are written beside the server, never in its way."""

import json
import os
import subprocess
import sys
import threading

from entracte_server.app.logs import BACKLOG, LineWriter


def test_a_reader_that_sleeps_stops_nobody_and_dropped_lines_are_counted() -> None:
    """A full pipe holds no caller up; what did not fit is told of once the pipe is read again."""
    read, write = os.pipe()
    writer = LineWriter(os.fdopen(write, "wb"))
    line = b"x" * 1000
    for _ in range(BACKLOG + 500):  # would block for ever, were it written here
        writer.msg(line)
    received = bytearray()

    def drain() -> None:
        while b"log_lines_dropped" not in received or b"the end" not in received:
            received.extend(os.read(read, 1 << 16))

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    writer.flush(20)
    writer.msg("the end")
    reader.join(20)
    assert not reader.is_alive()
    os.close(read)


def test_lines_come_in_order() -> None:
    """One line a message, as they were given."""
    read, write = os.pipe()
    writer = LineWriter(os.fdopen(write, "wb"))
    for number in range(100):
        writer.msg(str(number))
    writer.flush(20)
    assert os.read(read, 1 << 16).split() == [str(number).encode() for number in range(100)]
    os.close(read)


PROGRAM = """
import logging
from entracte_server.app.logs import configure
log = configure("info", "json", worker=2)
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("some.library").exception("it %s", "failed")
    logging.getLogger("grpc._cython.cygrpc").exception("a fault")
class ExecuteBatchError(Exception): pass
try:
    raise ExecuteBatchError
except ExecuteBatchError:
    logging.getLogger("grpc._cython.cygrpc").exception("a client left")
logging.getLogger("some.library").log(35, "a level of its own")
log.flush(5)
"""


def test_what_libraries_log_has_the_same_form() -> None:
    """A JSON object a line, with the worker's number and the traceback; that a client left is no fault."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=60, check=True)
    first, second, third = done.stderr.splitlines()
    event = json.loads(first)
    assert json.loads(second)["event"] == "a fault"
    assert (event["event"], event["logger"], event["level"]) == ("it failed", "some.library", "error")
    assert event["worker"] == 2
    assert "ZeroDivisionError" in event["exception"]
    event = json.loads(third)
    assert (event["event"], event["level"]) == ("a level of its own", "warning")
