"""The scorers a request names, and how often they are to run."""

from collections.abc import Mapping

from entracte.v1 import options_pb2
from entracte_server.agents.scorers import NAME, NAME_RULE, Scorer
from entracte_server.domain.errors import invalid
from entracte_server.domain.options import ScorerChoice

MAX_SCORERS = 64

_NONE = options_pb2.ScorerOptions.SAMPLING_NONE
_RATIO = options_pb2.ScorerOptions.SAMPLING_RATIO


def scorers_from(
    options: options_pb2.GenerateOptions, registered: Mapping[str, Scorer]
) -> tuple[ScorerChoice, ...] | None:
    """The scorers of a run, None where the agent's are to run. Raises `Refusal`."""
    if not options.scorers:
        return None
    if len(options.scorers) > MAX_SCORERS:
        raise invalid("options.scorers", f"at most {MAX_SCORERS}")
    chosen = []
    for key, given in sorted(options.scorers.items()):
        if not NAME.fullmatch(key):
            raise invalid("options.scorers", f"the key {key[:80]!r} cannot name a scorer: {NAME_RULE}")
        field = f"options.scorers.{key}"
        chosen.append(
            ScorerChoice(
                key, scorer_name(f"{field}.scorer", given.scorer or key, registered), _ratio(field, given)
            )
        )
    return tuple(chosen)


def scorer_name(field: str, name: str, registered: Mapping[str, Scorer]) -> str:
    """The name of a scorer that is there. Raises `Refusal`."""
    if name not in registered:
        there = ", ".join(sorted(registered)) or "none"
        raise invalid(field, f"there is no scorer {name[:80]!r}; the server has: {there}")
    return name


def _ratio(field: str, given: options_pb2.ScorerOptions) -> float | None:
    if given.sampling not in (options_pb2.ScorerOptions.SAMPLING_UNSPECIFIED, _NONE, _RATIO):
        raise invalid(f"{field}.sampling", "is not a sampling this server knows")
    if not given.HasField("sampling_ratio"):
        if given.sampling == _RATIO:
            raise invalid(f"{field}.sampling_ratio", "is required with SAMPLING_RATIO")
        return None
    if given.sampling == _NONE:
        raise invalid(f"{field}.sampling_ratio", "goes with SAMPLING_RATIO only")
    if not 0 <= given.sampling_ratio <= 1:  # NaN, too
        raise invalid(f"{field}.sampling_ratio", "must be from 0 to 1")
    return given.sampling_ratio
