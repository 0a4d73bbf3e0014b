"""Asking a person for an answer that fits a question and a JSON Schema."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from entracte_server.app.cli.output import clean, pretty


def ask_question(payload: Mapping[str, Any]) -> Any:
    """Ask what an `ask_user` question asks: a text, one label, or a list of labels.

    Choices are picked by number. Where the question allows it, any other text is an answer too.
    """
    options = [option for option in payload.get("options") or () if isinstance(option, Mapping)]
    click.echo(clean(str(payload.get("question", ""))))
    labels = [str(option.get("label", "")) for option in options]
    for number, option in enumerate(options, 1):
        more = option.get("description")
        click.echo(f"  {number}. {clean(labels[number - 1])}{f' - {clean(str(more))}' if more else ''}")
    free = bool(payload.get("allow_free_text"))
    if not labels:
        return _read("Answer")
    if payload.get("selection_mode") == "multi_select":
        return _choose_several(labels, free)
    return _choose_one(labels, free)


def _choose_one(labels: Sequence[str], free: bool) -> str:
    hint = "Number, or a text" if free else f"Number (1-{len(labels)})"
    while True:
        picked = _picked(_read(hint), labels, free)
        if picked is not None:
            return picked


def _choose_several(labels: Sequence[str], free: bool) -> list[str]:
    hint = "Numbers or texts, separated by commas" if free else "Numbers, separated by commas"
    while True:
        texts = [text.strip() for text in _read(hint).split(",") if text.strip()]
        picked = [_picked(text, labels, free) for text in texts]
        if picked and all(item is not None for item in picked):
            return list(dict.fromkeys(item for item in picked if item is not None))
        if not picked:
            click.echo("Choose at least one.")


def _picked(text: str, labels: Sequence[str], free: bool) -> str | None:
    """The label that a number or a text means. None, after saying so, where it means none."""
    if text in labels:
        return text
    if text.isdecimal() and 1 <= int(text) <= len(labels):
        return labels[int(text) - 1]
    if free and text:
        return text
    click.echo(f"Not a choice: {clean(text)}")
    return None


def ask_value(schema: Any, name: str = "Answer") -> Any:
    """Ask for a value that a JSON Schema describes, field by field where it can be done simply, else
    as JSON text. What the schema says beyond that is checked by the server."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(schema.get("description"), str):
        click.echo(clean(schema["description"]))
    if isinstance(schema.get("enum"), list):
        labels = [item if isinstance(item, str) else json.dumps(item) for item in schema["enum"]]
        for number, label in enumerate(labels, 1):
            click.echo(f"  {number}. {clean(label)}")
        return schema["enum"][labels.index(_choose_one(labels, free=False))]
    properties = schema.get("properties")
    match schema.get("type"):
        case "boolean":
            return click.confirm(name)
        case "string":
            return _read(name)
        case "integer":
            return click.prompt(name, type=int)
        case "number":
            return click.prompt(name, type=float)
        case "object" if isinstance(properties, Mapping) and properties:
            return _ask_fields(properties, schema.get("required") or ())
        case _:
            return ask_json(f"{name} as JSON")


def _ask_fields(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    value = {}
    for name, schema in properties.items():
        if name in required or click.confirm(f"Give {clean(name)}?", default=False):
            value[name] = ask_value(schema, clean(name))
    return value


def ask_json(question: str, default: str | None = None) -> Any:
    """Ask for JSON text until it is some."""
    while True:
        text = _read(question, default)
        try:
            return json.loads(text)
        except ValueError as error:
            click.echo(f"That is not JSON: {error}")


def show_value(value: Any) -> None:
    """Show a JSON value, indented."""
    click.echo("\n".join(f"  {line}" for line in pretty(value).splitlines()))


def _read(question: str, default: str | None = None) -> str:
    text: str = click.prompt(question, default="" if default is None else default, show_default=bool(default))
    return text.strip()
