"""Talks to the support agent of `examples/support.py`: asks, shows the answer as it comes, and decides what
waits for a person. At a terminal you decide; without one, all is agreed to.

    entracte serve examples.support:app                                                  # in one terminal
    python examples/client/python/support.py localhost:50051 "My kettle arrived broken"  # in another
"""

import asyncio
import sys

from entracte import Client, PendingCall, RunStream, ServerUnreachable


async def show(stream: RunStream) -> None:
    """Shows a stream as it comes."""
    async for chunk in stream:
        if chunk.type == "text-delta":
            print(chunk.text, end="", flush=True)
        elif chunk.type == "tool-call":
            print(f"\n[{chunk.tool_name} {chunk.args_json}]")
        elif chunk.type == "error":
            print(f"\nIt failed: {chunk.error.message}")
    print()


async def ask(text: str, otherwise: str) -> str:
    """What the person at the terminal says, or `otherwise` where there is nobody."""
    if not sys.stdin.isatty():
        print(f"{text} {otherwise}")
        return otherwise
    return (await asyncio.to_thread(input, f"{text} ")).strip() or otherwise


async def decide(client: Client, call: PendingCall) -> RunStream:
    """Has a person decide a call, and gives what comes of it as a stream."""
    agent = client.agent(call.agent_id)
    if call.kind == "approval":
        said = await ask(f"May it call {call.tool_name} with {call.args_json}?", "yes")
        return agent.approve_stream(call) if said == "yes" else agent.decline_stream(call, reason=said)
    if call.kind == "suspension":
        asked = call.suspend_payload
        if call.tool_name != "ask_user":
            return agent.resume_stream(call, {"ok": await ask(asked["question"], "yes") == "yes"})
        labels = [option["label"] for option in asked.get("options", ())]
        question = f"{asked['question']} ({', '.join(labels)})"
        return agent.resume_stream(call, await ask(question, labels[0] if labels else "yes"))
    return agent.decline_stream(call, reason="nobody can answer this here")


async def main(address: str = "localhost:50051", question: str = "My kettle arrived broken.") -> int:
    """One conversation, with all the decisions it takes. The exit code."""
    async with Client(address) as client:
        try:
            print(">", question)
            stream = client.agent("support").stream(question)
            await show(stream)
            while (result := await stream.result()).pending_calls:
                stream = await decide(client, result.pending_calls[0])
                await show(stream)
        except ServerUnreachable:
            hint = "Start one: entracte serve examples.support:app"
            print(f"No server answers at {address}. {hint}", file=sys.stderr)
            return 3
    print(f"({result.finish_reason}, {result.usage.total_tokens} tokens)")
    return 1 if result.finish_reason == "error" else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
