"""`entracte new`: the first agent of one's own."""

from pathlib import Path

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
        print()


asyncio.run(main(" ".join(sys.argv[1:]) or "Hello"))
'''


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def new(folder: Path) -> None:
    """Write a ten-line agent and a client into a new folder."""
    for name, text in (("agents.py", AGENT_TEMPLATE), ("client.py", CLIENT_TEMPLATE)):
        path = folder / name
        if path.exists():
            raise click.UsageError(f"{path} exists already")
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        click.echo(f"wrote {path}")
    click.echo(f"Next: cd {folder} && entracte serve agents:app --scripted")
