"""Limits of the engine. Times are in seconds, sizes in bytes."""

from typing import Literal

from entracte_server.domain.data import Data


class EngineSettings(Data, frozen=True):
    """See each field.

    lease: how long this process may be silent before others take over its runs.
    tool_timeout: the longest one execution of a tool may take, unless the tool says otherwise.
    execution_timeout: the longest a run may execute, waiting for people excluded; None: no limit.
    tool_worker_grace: how long a worker may be without a stream before its calls are given to others.
    tool_worker_wait: how long a call waits for a worker of its tool, when there is none.
    tool_worker_queue: how long it waits when all of them are busy.
    sync_tool_threads: how many synchronous tools may run at once in the process.
    cancel_grace: how long a cancelled tool may take to end before it is left behind.
    disconnect_grace: how long a run with `cancel_on_disconnect` goes on without a reader.
    keep_alive: the longest silence on a stream.
    reader_timeout: the longest a stream's reader may take for one message.
    reader_backlog: how much is held for a reader that lags before it is sent to read the log.
    log_backlog: how far a run may be ahead of its log before it waits.
    max_result: the largest result of a tool.
    max_faulty_steps: how many steps in a row may have no usable tool call.
    tool_errors: whether the model and the stream are told what a tool raised.
    scorer_timeout: the longest one scorer may take, unless it says otherwise.
    processor_timeout: the longest one call of a processor may take, unless it says otherwise.
    max_runs, runs_per_principal: how many runs may execute in this process before no more are started,
        of all and of one principal.
    thread_queue: how many runs may wait for one thread.
    queue_timeout: how long a run may wait for its thread, unless its caller says otherwise.
    recall_messages: how many messages a run searches at most, the newest.
    recall_timeout: how long that may take; the run goes on without.
    retain_chunks, retain_runs: how long the chunk logs of ended runs, and ended runs, are kept; None:
        until they are deleted.
    retain_requests: how long a repeated request is recognised; None: for ever.
    """

    lease: float = 15.0
    tool_timeout: float = 300.0
    execution_timeout: float | None = None
    tool_worker_grace: float = 30.0
    tool_worker_wait: float = 60.0
    tool_worker_queue: float = 3600.0
    sync_tool_threads: int = 64
    cancel_grace: float = 1.0
    disconnect_grace: float = 10.0
    keep_alive: float = 15.0
    reader_timeout: float = 30.0
    reader_backlog: int = 1024 * 1024
    log_backlog: int = 1024 * 1024
    max_result: int = 4 * 1024 * 1024
    max_faulty_steps: int = 3
    tool_errors: Literal["message", "generic"] = "message"
    scorer_timeout: float = 60.0
    processor_timeout: float = 60.0
    max_runs: int = 10_000
    runs_per_principal: int = 10_000
    thread_queue: int = 100
    queue_timeout: float = 600.0
    recall_messages: int = 100_000
    recall_timeout: float = 10.0
    retain_chunks: float | None = None
    retain_runs: float | None = None
    retain_requests: float | None = 7 * 86400.0
