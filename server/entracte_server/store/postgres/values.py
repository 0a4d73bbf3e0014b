"""Statements that are put together from parts: fixed texts, and placeholders for values."""

from entracte_server.store.postgres.encoding import Value


class Values:
    """Numbers the values of a statement. Called with a value it gives the placeholder for it.

    The text depends on which parts a statement has, never on the values, so that statements of one
    form are prepared once.
    """

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound: list[Value] = []

    def __call__(self, value: Value) -> str:
        self.bound.append(value)
        return f"${len(self.bound)}"

    def row(self, *values: Value) -> str:
        """The placeholders of several, in a row."""
        return ", ".join([self(value) for value in values])
