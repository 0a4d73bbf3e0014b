"""Writes the tables of docs/errors.md and docs/settings.md: `python docs/generate.py [--check]`.

The text before the marker in each file is written by hand, what follows it is made here from the
protos and from the settings class. With `--check` nothing is written; exit code 1 says that a file
is not up to date.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from entracte_server.app.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
MARKER = "<!-- From here on the file is generated: `make gen`. -->\n"

_VALUE = re.compile(r"((?:^ *//.*\n)+)^ *ERROR_REASON_(\w+) = (\d+);", re.MULTILINE)
_CLAUSE = re.compile(r"\b(Metadata|Details): ")


def errors_table() -> str:
    """One row per reason, from the comments in errors.proto."""
    rows = [
        "| Reason | Status | What it means | Metadata | Details |",
        "| --- | --- | --- | --- | --- |",
    ]
    text = (ROOT / "proto/entracte/v1/errors.proto").read_text(encoding="utf-8")
    for comment, name, number in _VALUE.findall(text):
        if number == "0":
            continue
        words = " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
        status, _, rest = words.partition(". ")
        meaning, *clauses = _CLAUSE.split(rest)
        found = dict(zip(clauses[::2], clauses[1::2], strict=True))
        cells = [
            f"`{name}`",
            f"`{status}`",
            meaning.strip(),
            found.get("Metadata", "").strip().removesuffix("."),
            found.get("Details", "").strip().removesuffix("."),
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def settings_table() -> str:
    """One row per setting, from the settings class."""
    rows = [
        "| Setting | Variable | Default | What it does |",
        "| --- | --- | --- | --- |",
    ]
    for name, field in Settings.model_fields.items():
        default = "none" if field.default is None else f"`{json.dumps(field.default)}`"
        rows.append(f"| `{name}` | `ENTRACTE_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


TABLES: dict[str, Callable[[], str]] = {"errors.md": errors_table, "settings.md": settings_table}


def rendered(name: str) -> str:
    """The whole text that docs/`name` should have."""
    head, marker, _ = (ROOT / "docs" / name).read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise SystemExit(f"docs/{name} has no line {MARKER.strip()}")
    return f"{head}{marker}\n{TABLES[name]()}"


def main(*, check: bool) -> int:
    """The exit code."""
    stale = [name for name in TABLES if (ROOT / "docs" / name).read_text(encoding="utf-8") != rendered(name)]
    for name in stale:
        if check:
            print(f"docs/{name} is not up to date: run 'make gen' and commit it", file=sys.stderr)
        else:
            (ROOT / "docs" / name).write_text(rendered(name), encoding="utf-8")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
