"""The base of every record in the domain: frozen, slotted, compact when stored."""

import msgspec


class Data(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=False):
    """An immutable record.

    `msgspec.Struct` rather than a dataclass: making one costs a fifth, and the same class is the
    schema under which it is stored (defaults left out, unknown fields of a newer version skipped).
    """
