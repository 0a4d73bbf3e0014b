"""The metrics of a process."""

import time
from collections.abc import Iterator, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from entracte_server.telemetry.names import AGENT_NAME

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
MINUTES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
DAYS = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 3 * 86400.0, 7 * 86400.0)
TOKENS = tuple(4.0**i for i in range(14))
"""Bounds of histograms, those of the conventions where they have some."""


class Instruments:
    """See docs/observability.md for what each counts, and under which attributes."""

    def __init__(self, meter: Meter) -> None:
        self.runs_started = meter.create_counter(
            "entracte.runs.started", "{run}", "Runs that were started in this process."
        )
        self.runs_parked = meter.create_counter(
            "entracte.runs.parked", "{run}", "How often runs were left waiting for people."
        )
        self.runs_ended = meter.create_counter("entracte.runs.ended", "{run}", "Runs that ended.")
        self.runs_active = meter.create_up_down_counter(
            "entracte.runs.active", "{run}", "Runs that execute in this process now."
        )
        self.run_duration = meter.create_histogram(
            "entracte.run.duration",
            "s",
            "From the start of a run to its end, waiting for people included.",
            explicit_bucket_boundaries_advisory=DAYS,
        )
        self.steps = meter.create_counter("entracte.steps", "{step}", "Steps that ended.")
        self.step_duration = meter.create_histogram(
            "entracte.step.duration",
            "s",
            "How long a step executed: its model call, its tools, and what follows them.",
            explicit_bucket_boundaries_advisory=MINUTES,
        )
        self._backlog: Mapping[str, tuple[int, int]] | None = None
        meter.create_observable_gauge(
            "entracte.pending_calls", [self._calls], "{call}", "Calls that wait now, in the whole store."
        )
        meter.create_observable_gauge(
            "entracte.pending_calls.age", [self._ages], "s", "How long the oldest of them has waited."
        )
        self.pending_opened = meter.create_counter(
            "entracte.pending_calls.opened", "{call}", "Calls that began to wait."
        )
        self.pending_decided = meter.create_counter(
            "entracte.pending_calls.decided", "{call}", "Calls that were decided, expired or were dropped."
        )
        self.pending_wait = meter.create_histogram(
            "entracte.pending_call.wait",
            "s",
            "How long calls waited.",
            explicit_bucket_boundaries_advisory=DAYS,
        )
        self.agent_duration = meter.create_histogram(
            "gen_ai.invoke_agent.duration",
            "s",
            "How long a run executed, from a start or resumption to the next rest.",
            explicit_bucket_boundaries_advisory=MINUTES,
        )
        self.model_duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "How long a model call took.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "From the request of a model call to the first piece of its answer.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a model call.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )
        self.tool_duration = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            "s",
            "How long the body of a tool took.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.scorer_duration = meter.create_histogram(
            "entracte.scorer.duration",
            "s",
            "How long a scorer took.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )

    def tell_backlog(self, waiting: Mapping[str, tuple[int, int]] | None) -> None:
        """See `Telemetry.backlog`. Agents that had calls have 0 when they have none any more."""
        if waiting is not None and self._backlog is not None:
            waiting = {**dict.fromkeys(self._backlog, (0, 0)), **waiting}
        self._backlog = waiting

    # These two are called from the threads of exporters.

    def _calls(self, _: CallbackOptions) -> Iterator[Observation]:
        for agent, (calls, _since) in (self._backlog or {}).items():
            yield Observation(calls, {AGENT_NAME: agent})

    def _ages(self, _: CallbackOptions) -> Iterator[Observation]:
        for agent, (calls, since) in (self._backlog or {}).items():
            yield Observation(max(0.0, time.time() - since / 1000) if calls else 0.0, {AGENT_NAME: agent})
