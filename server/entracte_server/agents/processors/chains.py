"""Which processors a run has, in which order."""

from collections.abc import Iterable, Mapping

from entracte_server.agents.processors.base import InvalidParameters, Processor
from entracte_server.domain import json_text
from entracte_server.domain.options import ProcessorRef

Chosen = Iterable[str | Processor | ProcessorRef]


def chains(
    known: Mapping[str, Processor], inputs: Chosen, outputs: Chosen
) -> tuple[list[Processor], list[Processor]]:
    """The processors of one run, made for it. One that is named twice, in one chain or in both, with the same
    parameters, is one object with one state, which is once in a chain. Raises `InvalidParameters`."""
    made: dict[tuple[str | int, str | None], Processor] = {}

    def one(chosen: str | Processor | ProcessorRef) -> Processor:
        if isinstance(chosen, str):
            chosen = ProcessorRef(chosen)
        key = (id(chosen), None) if isinstance(chosen, Processor) else (chosen.name, chosen.parameters)
        if key not in made:
            if isinstance(chosen, Processor):
                made[key] = chosen.bound()
            else:
                parameters = json_text.parse(chosen.parameters) if chosen.parameters is not None else None
                made[key] = known[chosen.name].bound(parameters)
        return made[key]

    return list(dict.fromkeys(map(one, inputs))), list(dict.fromkeys(map(one, outputs)))


def check(known: Mapping[str, Processor], chosen: Chosen) -> None:
    """Raises `ValueError` for a name that is not known."""
    for item in chosen:
        name = item.name if isinstance(item, ProcessorRef) else item
        if isinstance(name, str) and name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ValueError(f"there is no processor {name[:80]!r}; there are: {names}")


__all__ = ["InvalidParameters", "chains", "check"]
