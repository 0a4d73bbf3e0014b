"""The options about processors: which, with which parameters, and how often they may send an answer back."""

from entracte.v1 import options_pb2
from entracte_server.agents.agent import App
from entracte_server.agents.processors.base import InvalidParameters
from entracte_server.domain.errors import invalid
from entracte_server.domain.options import ProcessorRef
from entracte_server.rpc import checks

MAX_PROCESSORS = 32


def processor_refs(
    app: App, options: options_pb2.GenerateOptions, name: str
) -> tuple[ProcessorRef, ...] | None:
    """`input_processors` or `output_processors`; None: the agent's. Raises `Refusal`."""
    if not options.HasField(name):  # type: ignore[arg-type]
        return None
    given = getattr(options, name).processors
    field = f"options.{name}.processors"
    if len(given) > MAX_PROCESSORS:
        raise invalid(field, f"at most {MAX_PROCESSORS}")
    return tuple(_ref(app, f"{field}[{i}]", ref) for i, ref in enumerate(given))


def _ref(app: App, field: str, given: options_pb2.ProcessorRef) -> ProcessorRef:
    processor = app.processors.get(given.name)
    if processor is None:
        names = ", ".join(sorted(app.processors)) or "none"
        raise invalid(f"{field}.name", f"there is no processor {given.name[:80]!r}; there are: {names}")
    if not given.HasField("parameters"):
        return ProcessorRef(given.name)
    text, value = checks.json_object(f"{field}.parameters", given.parameters)
    try:
        processor.bound(value)
    except InvalidParameters as error:
        path = f".{error.path}" if error.path else ""
        raise invalid(f"{field}.parameters{path}", error.message) from None
    return ProcessorRef(given.name, text)


def max_retries(options: options_pb2.GenerateOptions) -> int | None:
    """None: as the agent says."""
    if not options.HasField("max_processor_retries"):
        return None
    if options.max_processor_retries < 0:
        raise invalid("options.max_processor_retries", "must be at least 0")
    return options.max_processor_retries
