"""Runs the support agent on a small real model on this machine: `make local-model`.

The model (SmolLM2, 135 million parameters) speaks and streams but is too small to use tools well. What it
is to answer with data, its server makes it do, by a grammar.
Where a folder of recorded provider traffic is at hand (`ENTRACTE_RECORDINGS`, or
`../shared/recordings`), that is played through the server as well.
"""

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from entracte import Client, StructuredOutput
from examples.recordings import check_recordings, find_recordings
from examples.server_process import ROOT, ServerProcess

QUESTION = "A kettle boils water. Which room is it for, and what does it cost? Answer with data."
SCHEMAS: dict[str, Any] = {
    "object": {
        "type": "object",
        "properties": {
            "room": {"enum": ["kitchen", "bathroom", "garden"]},
            "dollars": {"type": "integer", "minimum": 1, "maximum": 999},
            "uses": {
                "type": "array",
                "items": {"enum": ["tea", "coffee", "soup"]},
                "minItems": 1,
                "maxItems": 3,
            },
        },
        "required": ["room", "dollars", "uses"],
        "additionalProperties": False,
    },
    "array": {"type": "array", "items": {"type": "integer", "maximum": 99}, "minItems": 2, "maxItems": 4},
    "enum": {"enum": ["kitchen", "bathroom", "garden"]},
}
"""What the model must answer with: its server holds it to a grammar made of each."""

PROMPT = "In two sentences: what is a kettle good for?"
PYTHON = ROOT / ".venv-local" / "bin" / "python"


@contextlib.asynccontextmanager
async def model_server(log: Path) -> AsyncIterator[str]:
    """The base URL of the local model's server, run as a process."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            str(PYTHON),
            str(ROOT / "examples" / "local_model_server.py"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        if not line:
            words = await asyncio.to_thread(log.read_text)
            raise RuntimeError(f"the model's server did not start:\n{words[-2000:]}")
        yield line
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def talk(work: Path) -> None:
    """One prompt, streamed."""
    async with model_server(work / "model.log") as base_url:
        server = ServerProcess(
            "examples.support:app",
            store=work / "local.db",
            log=work / "server.log",
            environment={
                "ENTRACTE_PROVIDERS": json.dumps({"local": {"base_url": base_url, "requires_key": False}}),
                "ENTRACTE_EXAMPLE_MODEL": "local/smollm2",
            },
        )
        async with server, Client(server.address) as client:
            print(f"SmolLM2 on {base_url}, Entracte on {server.address}.\n\nyou: {PROMPT}\nmodel: ", end="")
            begin = time.monotonic()
            stream = client.agent("support").stream(
                PROMPT, model_settings={"max_output_tokens": 120, "temperature": 0.2, "seed": 7}
            )
            async for text in stream.text_stream:
                print(text, end="", flush=True)
            result = await stream.result()
            if result.error is not None:
                raise SystemExit(f"\nthe run failed: {result.error.kind}: {result.error.message}")
            seconds = time.monotonic() - begin
            usage = result.usage
            print(
                f"\n\n{usage.input_tokens} tokens in, {usage.output_tokens} out, {seconds:.1f} s,"
                f" finish reason {result.finish_reason}, {stream.position} chunks."
            )
            if not result.text or not usage.output_tokens:
                raise SystemExit("the model said nothing")
            await structure(client)


async def structure(client: Client) -> None:
    """Answers that fit a schema, natively: an object, an array, one of some words."""
    print()
    for name, schema in SCHEMAS.items():
        result = await client.agent("support").generate(
            QUESTION,
            structured_output=StructuredOutput(schema, json_prompt_injection="off"),
            tool_choice="none",  # with tools the schema would have to be in the prompt
            model_settings={"max_output_tokens": 200, "temperature": 0.2, "seed": 7},
        )
        if result.error is not None or result.warnings:
            why = result.error.message if result.error is not None else "; ".join(result.warnings)
            raise SystemExit(f"no {name}: {why}")
        print(f"{name}: {json.dumps(result.object)}")


async def run() -> bool:
    """Both parts; whether all was as expected."""
    with tempfile.TemporaryDirectory(prefix="entracte-local-") as folder:
        await talk(Path(folder))
        recordings = find_recordings()
        if recordings is None:
            print("No folder of recordings is here (ENTRACTE_RECORDINGS names one): that part is left out.")
            return True
        return await check_recordings(recordings, Path(folder))


def main() -> int:
    """The exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves the blocks that end the servers
    if not PYTHON.exists():
        print("Run it with `make local-model`, which installs the model first.", file=sys.stderr)
        return 1
    return 0 if asyncio.run(asyncio.wait_for(run(), 300)) else 1


if __name__ == "__main__":
    sys.exit(main())
