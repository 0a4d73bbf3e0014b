"""Names in a request of what is registered with the app."""

from collections.abc import Iterable

from entracte_server.domain.errors import invalid

MAX_LISTED = 50
"""Names that a refusal lists."""


def check_registered(field: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises `Refusal` for the first of `names` that is not known, listing what is."""
    there = sorted(known)
    for i, name in enumerate(names):
        if name not in there:
            listed = ", ".join(there[:MAX_LISTED])
            hint = f"there are: {listed}" if there else f"no {what} is registered"
            raise invalid(f"{field}[{i}]", f"there is no {what} {name[:80]!r}; {hint}")
