"""Output for people and for programs."""

import json
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

# What changes the order in which text is shown, so that a reader sees something else than there is.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """Text from elsewhere, safe to print: control characters appear as their codes, and carriage
    returns are left out.

    What models and tools say must not be able to rewrite the screen a person decides by.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r", "")
    return "".join(character if _is_plain(character) else _code(character) for character in text)


def _is_plain(character: str) -> bool:
    if character in "\n\t":
        return True
    return unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") and character not in _REORDERING


def _code(character: str) -> str:
    return f"\\u{ord(character):04x}"


def one_line(value: Any, width: int = 0) -> str:
    """A value in one line of at most `width` characters (0: any)."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = clean(" ".join(text.split()))
    return f"{text[: width - 1]}…" if width and len(text) > width else text


def pretty(value: Any) -> str:
    """A JSON value over several lines."""
    return clean(json.dumps(value, ensure_ascii=False, indent=2))


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document; with `indent` None, in one line."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Columns as wide as they need to be; the last one is cut where the line ends."""
    lines = [[clean(cell).replace("\n", " ") for cell in row] for row in rows]
    if not lines:
        click.echo(empty)
        return
    widths = [max(len(line[index]) for line in [list(headings), *lines]) for index in range(len(headings))]
    room = max(20, shutil.get_terminal_size((120, 24)).columns - sum(widths[:-1]) - 2 * (len(widths) - 1))
    for number, line in enumerate([list(headings), *lines]):
        cells = [cell.ljust(width) for cell, width in zip(line[:-1], widths[:-1], strict=True)]
        text = "  ".join([*cells, one_line(line[-1], room)]).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 else text)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one to a line; empty values are left out."""
    shown = [(name, str(value)) for name, value in fields if value not in (None, "", 0)]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {clean(value)}")


def time_text(time: datetime | None) -> str:
    """A time in the local zone, to the second."""
    return "" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age_text(time: datetime | None) -> str:
    """How long ago something was, in its largest unit."""
    if time is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - time).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
