"""The hooks around delegations in the options of a request."""

from entracte.v1 import options_pb2
from entracte_server.agents.agent import App
from entracte_server.domain.errors import invalid
from entracte_server.domain.options import DelegationHooks
from entracte_server.rpc.stopping_options import hook_name

_Wire = options_pb2.DelegationOptions

_STRATEGIES = {
    _Wire.HOOK_ERROR_STRATEGY_UNSPECIFIED: "",
    _Wire.HOOK_ERROR_STRATEGY_WARN: "warn",
    _Wire.HOOK_ERROR_STRATEGY_THROW: "throw",
}


def delegation_hooks(app: App, options: options_pb2.GenerateOptions) -> DelegationHooks | None:
    """Those of the run; None: the agent's. Raises `Refusal`."""
    if not options.HasField("delegation"):
        return None
    given, field = options.delegation, "options.delegation"
    strategy = _STRATEGIES.get(given.hook_error_strategy)
    if strategy is None:
        raise invalid(f"{field}.hook_error_strategy", "is not a strategy this server knows")
    return DelegationHooks(
        hook_name(app, f"{field}.on_delegation_start", given.on_delegation_start, "delegation_start"),
        hook_name(
            app, f"{field}.on_delegation_complete", given.on_delegation_complete, "delegation_complete"
        ),
        hook_name(app, f"{field}.message_filter", given.message_filter, "message_filter"),
        strategy,  # type: ignore[arg-type]
    )
