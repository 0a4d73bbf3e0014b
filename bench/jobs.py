"""What the orchestrator asks of a generator and what it gets back, as JSON lines."""

from __future__ import annotations

import msgspec


class Job(msgspec.Struct, kw_only=True, tag_field="job"):
    """What every job has."""

    kind: str  # of target: `proxy` or `entracte`
    address: str  # of the server
    model: str  # the behaviour of the mock
    channels: int = 50


class Throughput(Job, kw_only=True):
    """Runs (or cycles of suspend, approve, finish) back to back, counted inside a window of time."""

    deltas: int  # of one stream
    cycles: str = ""  # `wait` or `watch`: how a cycle gets its second half; empty for plain runs
    concurrency: int = 50
    warmup: float = 1.0  # seconds
    seconds: float = 4.0
    stagger: float = 0.0  # seconds between the starts of two workers
    pid: int  # of the server
    mock_pid: int


class First(Job, kw_only=True):
    """Delay of the first delta, one run at a time, in turn with the raw model."""

    mock_port: int
    count: int = 40


class Hold(Job, kw_only=True):
    """Open quiet streams and keep them until a line comes in."""

    count: int


class Suspend(Job, kw_only=True):
    """Park runs."""

    count: int
    deltas: int
    concurrency: int = 50


class Window(msgspec.Struct, kw_only=True):
    """What a Throughput job saw between the two ends of its window."""

    seconds: float
    chunks: int
    runs: int
    cpu: float  # seconds of the server's processes
    generator_cpu: float
    mock_cpu: float
    other_cpu: float  # of everything else on the machine, which is noise
    checked: int  # streams compared with what the model said, over the whole job
    errors: list[str]


class FirstDelays(msgspec.Struct, kw_only=True):
    """What a First job saw, in seconds."""

    raw: list[float]
    system: list[float]
    errors: list[str]


class Done(msgspec.Struct, kw_only=True):
    """What a Hold or Suspend job reached."""

    count: int
    seconds: float
    errors: list[str]


AnyJob = Throughput | First | Hold | Suspend


def decode_done(line: str) -> Done:
    """The result line of a Hold job."""
    return msgspec.json.decode(line, type=Done)
