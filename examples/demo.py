"""Talks to the support agent on a real server: `make run`.

With a terminal it opens a chat. Without one it plays a conversation: text that streams, a question,
an approval, a refusal, and a server that is killed in the middle and goes on where it stopped.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from entracte import Client, PendingCall, RunStream
from examples.server_process import ROOT, ServerProcess

APP = "examples.support:app"
Decide = Callable[[PendingCall], RunStream]


def model_line() -> str:
    """Which model answers, and why."""
    named = os.environ.get("ENTRACTE_EXAMPLE_MODEL")
    if named:
        return f"{named}, as ENTRACTE_EXAMPLE_MODEL says"
    if os.environ.get("OPENAI_API_KEY"):
        return "OpenAI, because OPENAI_API_KEY is set"
    return "a script, because OPENAI_API_KEY is not set"


def say(who: str, text: str = "") -> None:
    print(f"{who:>8} | {text}", flush=True)


def show_call(call: PendingCall) -> None:
    """What a person would be shown."""
    if call.kind == "approval":
        say("APPROVE?", f"{call.tool_name} {call.args_json}")
        return
    asked = call.suspend_payload or {}
    options = [option["label"] for option in asked.get("options", ())]
    choices = f"  [{' / '.join(options)}]" if options else ""
    say("QUESTION", f"{asked.get('question', call.args_json)}{choices}")


async def show(stream: RunStream, on_text: Callable[[int], Awaitable[bool]] | None = None) -> None:
    """Print the chunks of a run as they come. `on_text` is told how many pieces of text there were,
    and tells whether it ended the line."""
    pieces = 0
    line_open = False

    def end_line() -> None:
        nonlocal line_open
        if line_open:
            print()
        line_open = False

    async for chunk in stream:
        if chunk.type == "text-delta":
            if not line_open:
                print(f"{'support':>8} | ", end="")
                line_open = True
            print(chunk.text, end="", flush=True)
            pieces += 1
            if on_text is not None and await on_text(pieces):
                line_open = False
            continue
        end_line()
        if chunk.type == "step-start" and chunk.attempt > 1:
            say("", f"(attempt {chunk.attempt}: the model's answer was cut off, so it is asked again)")
        elif chunk.type == "tool-call":
            say("tool", f"{chunk.tool_name} {chunk.args_json}")
        elif chunk.type == "tool-result":
            say("result", chunk.result_json or "")
        elif chunk.type == "tool-output-denied":
            say("declined", chunk.reason)
        elif chunk.type in ("tool-error", "error"):
            say("error", str(getattr(chunk, "message", "") or chunk))
        elif chunk.type == "finish":
            say("", f"({chunk.reason}, chunk {chunk.sequence})")
    end_line()


async def restart(server: ServerProcess, why: str) -> None:
    """Kill the server without a warning and start it again on the same database."""
    pid = server.pid
    await server.kill()
    print(f"\n*** kill -9 {pid}: the server is gone {why}")
    await server.start()
    print(f"*** a new server, pid {server.pid}, on the same database\n")


async def play(client: Client, server: ServerProcess) -> None:
    """The conversation."""
    agent = client.agent("support")

    async def converse(
        text: str,
        decide: Decide,
        *,
        before: Callable[[PendingCall], Awaitable[None]] | None = None,
        on_text: Callable[[int], Awaitable[bool]] | None = None,
    ) -> None:
        print()
        say("you", text)
        stream = agent.stream(text)
        await show(stream, on_text)
        result = await stream.result()
        while result.finish_reason == "suspended":
            call = result.pending_calls[0]
            if before is not None:
                await before(call)
            show_call(call)
            stream = decide(call)
            await show(stream)
            result = await stream.result()
        if result.error is not None:
            raise SystemExit(f"the run failed: {result.error.message}")

    def agree(call: PendingCall) -> RunStream:
        if call.kind == "approval":
            say("reviewer", "yes")
            return agent.approve_stream(call, comment="the photo shows it")
        if call.tool_name == "close_account":
            say("you", "yes")
            return agent.resume_stream(call, {"ok": True})
        answer = "7" if call.suspend_payload.get("options") else "Order 7, please. My name is Ada."
        say("you", answer)
        return agent.resume_stream(call, answer)

    def refuse(call: PendingCall) -> RunStream:
        if call.kind != "approval":
            return agree(call)
        say("reviewer", "no")
        return agent.decline_stream(call, reason="the lamp was delivered, and nothing is wrong with it")

    killed = False

    async def crash_while_parked(call: PendingCall) -> None:
        nonlocal killed
        if call.kind == "approval" and not killed:
            killed = True
            await restart(server, "while the run waits for approval")

    async def crash_while_streaming(pieces: int) -> bool:
        if pieces != 4:
            return False
        print()
        await restart(server, "in the middle of a sentence")
        return True

    await converse("My kettle arrived broken, I want my money back.", agree, before=crash_while_parked)
    await converse("Refund order 8 too, please.", refuse)
    await converse("Where is order 9?", agree, on_text=crash_while_streaming)
    await converse("Thank you. Now close my account.", agree)

    print("\nWhat was decided, by whom:")
    async for decision in client.inbox.decisions():
        why = decision.comment or decision.reason
        say(
            str(decision.verb), f"{decision.tool_name}, by {decision.principal}" + (f": {why}" if why else "")
        )


async def without_terminal() -> None:
    """Play the conversation on a database that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="entracte-demo-") as folder:
        server = ServerProcess(APP, store=Path(folder, "demo.db"), log=Path(folder, "server.log"))
        async with server, Client(server.address) as client:
            print(
                f"A server (pid {server.pid}) on {server.address} with SQLite. The model is {model_line()}."
            )
            await play(client, server)
    print("\nThat was it. Run `make run` in a terminal to talk to the agent yourself.")


async def with_terminal() -> int:
    """Open a chat; runs stay in var/support.db."""
    folder = ROOT / "var"
    folder.mkdir(exist_ok=True)
    server = ServerProcess(APP, store=folder / "support.db", log=folder / "support.log")
    async with server:
        print(f"A server (pid {server.pid}) on {server.address}, log in {server.log}.")
        print(f"The model is {model_line()}.", flush=True)
        # Ctrl-C is for the chat, where it stops an answer.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        chat = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("entracte"), "chat", "support", "--address", server.address
        )
        return await chat.wait()


def main() -> int:
    """The exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave the blocks that end the server
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return asyncio.run(with_terminal())
        asyncio.run(asyncio.wait_for(without_terminal(), 90))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
