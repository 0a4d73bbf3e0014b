"""What a run used and how it failed: small records shared by chunks, steps and results."""

from entracte_server.domain.data import Data


class Usage(Data, frozen=True):
    """Tokens. `input` and `output` include `cached_input` and `reasoning`."""

    input: int = 0
    output: int = 0
    total: int = 0
    reasoning: int = 0
    cached_input: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.total + other.total,
            self.reasoning + other.reasoning,
            self.cached_input + other.cached_input,
        )


class Tripwire(Data, frozen=True):
    """What a processor said when it stopped something. `metadata` is the JSON text of an object; `retry`
    says that it asked for another try of the step, whether there was one or not."""

    reason: str
    processor_id: str
    retry: bool = False
    metadata: str | None = None


class RunError(Data, frozen=True):
    """Why a run failed. It is a result, never the status of an RPC.

    `kind`: `provider_error`, `cut` (the model's stream ended without a finish reason), `stall` (no
    bytes within the idle limit), `content_filter`, `empty_stream`, `connection`, `timeout`,
    `tool_limit`, `expired` (nobody decided a call in time, and the run was to fail then),
    `structured_output_invalid` (`raw` lists the violations), `structured_output_truncated`,
    `processor` (one of the run's processors failed), `internal`.
    `status` is the provider's HTTP status, 0 where there was none. `retry_after` is in seconds, 0 where
    the provider did not say.
    """

    kind: str
    message: str
    status: int = 0
    retryable: bool = False
    retry_after: float = 0.0
    code: str = ""
    raw: str | None = None


class CheckResult(Data, frozen=True):
    """What one check of completion came to; `score` is None where it could not be made."""

    name: str
    score: float | None = None
    passed: bool = False
    reason: str = ""
