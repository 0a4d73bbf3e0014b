"""`entracte new`: the first agent of one's own."""

import json
from pathlib import Path
from typing import Any

import click

AGENT_TEMPLATE = '''"""An agent: `entracte serve agents:app`."""

from entracte_server import Agent, App, ask_user, tool


@tool(requires_approval=True)
async def send_mail(to: str, subject: str) -> dict[str, bool]:
    """Send a mail. A person approves each one."""
    return {"sent": True}


app = App(agents=[Agent(id="assistant", model="openai/gpt-5-mini", tools=[send_mail, ask_user])])
'''

CLIENT_TEMPLATE = '''"""A client: `python client.py "Write to Ada"`."""

import asyncio
import sys

from entracte import Client


async def main(prompt: str) -> None:
    async with Client("127.0.0.1:50051") as client:
        agent = client.agent("assistant")
        async for chunk in agent.stream(prompt):
            if chunk.type == "text-delta":
                print(chunk.text, end="", flush=True)
            elif chunk.type == "tool-call-approval":
                print(f"\\nwaits for approval: {chunk.tool_name} {chunk.args}")
                print(f"  entracte inbox approve {chunk.pending_call_id} --follow")
            elif chunk.type == "tool-call-suspended":
                print(f"\\nwaits for an answer: {chunk.tool_name} {chunk.args}")
                print(f"  entracte inbox answer {chunk.pending_call_id} --follow")
        print()


asyncio.run(main(" ".join(sys.argv[1:]) or "Hello"))
'''

SCRIPT: list[list[dict[str, Any]]] = [
    [
        {"text": "I write to Ada."},
        {"tool": "send_mail", "args": {"to": "ada@example.com", "subject": "Lunch on Friday?"}},
    ],
    [{"text": "The mail to Ada is out."}],
]
"""What `serve --scripted script.json` answers in place of a model."""


def _script_text() -> str:
    """The script as a file that can be read and edited: a line per part."""
    steps = [",\n".join(f"    {json.dumps(part)}" for part in step) for step in SCRIPT]
    return "[\n" + ",\n".join(f"  [\n{step}\n  ]" for step in steps) + "\n]\n"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def new(folder: Path) -> None:
    """Write a ten-line agent, a client, and a script to play without a model into a new folder."""
    files = {"agents.py": AGENT_TEMPLATE, "client.py": CLIENT_TEMPLATE, "script.json": _script_text()}
    for name in files:
        if (folder / name).exists():
            raise click.UsageError(f"{folder / name} exists already")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
        click.echo(f"wrote {folder / name}")
    click.echo(f"Next: cd {folder} && entracte serve agents:app --scripted script.json")
