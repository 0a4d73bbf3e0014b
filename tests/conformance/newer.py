"""A contract newer than the SDKs: the protos of this repository with more in them, compiled into a folder.

What is added is what a later version may add: a chunk type, values of enumerations, fields of messages.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"

_FIELDS = "string newer_text = 900;\n  repeated uint64 newer_numbers = 901;\n  Newer newer = 902;"
_FIELDS_IN = {
    "chunk.proto": ("Chunk", "TextDeltaChunk", "StepStartChunk", "FinishChunk", "ToolCallSuspendedChunk"),
    "generate_result.proto": ("GenerateResult", "StepResult"),
    "pending_call.proto": ("PendingCall", "Decision"),
    "run.proto": ("Run",),
    "thread.proto": ("Thread",),
    "agent_service.proto": ("GenerateResponse", "StreamResponse"),
}
_VALUES_IN = {
    "result.proto": ("FinishReason", "StopCause"),
    "chunk.proto": ("PendingCallKind", "ChunkSource", "DecisionVerb"),
    "pending_call.proto": ("PendingCallState", "ExpiryAction"),
    "run.proto": ("RunState",),
    "errors.proto": ("ErrorReason",),
}
_MESSAGE = "message Newer {\n  string text = 1;\n  map<string, bytes> more = 2;\n}\n"


def _prefix(enum: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in enum)[1:]


def _into(text: str, opening: str, addition: str) -> str:
    """`text` with something added right after a line that is there once."""
    assert text.count(opening) == 1, f"the contract has no place for what is added: {opening}"
    return text.replace(opening, f"{opening}\n  {addition}")


def _extended(name: str, text: str) -> str:
    for message in _FIELDS_IN.get(name, ()):
        text = _into(text, f"message {message} {{", _FIELDS)
    for enum in _VALUES_IN.get(name, ()):
        zero = f"{_prefix(enum)}_UNSPECIFIED = 0;"
        text = _into(text, zero, f"{_prefix(enum)}_NEWER = 900;")
    if name == "chunk.proto":
        text = _into(text, "oneof payload {", "Newer hologram = 910;")
    if name == "json.proto":
        text += _MESSAGE
    elif name in _FIELDS_IN and "entracte/v1/json.proto" not in text:
        text = text.replace("package entracte.v1;", 'package entracte.v1;\nimport "entracte/v1/json.proto";')
    return text


def compile_into(folder: Path) -> None:
    """Write the newer stubs below `folder`, as the package `entracte.v1`."""
    protos, stubs = folder / "proto", folder / "stubs"
    sources = protos / "entracte" / "v1"
    sources.mkdir(parents=True)
    package = stubs / "entracte" / "v1"
    package.mkdir(parents=True)
    for path in (PROTO / "entracte" / "v1").glob("*.proto"):
        (sources / path.name).write_text(_extended(path.name, path.read_text()))
    for init in (package, package.parent):
        (init / "__init__.py").touch()
    files = sorted(path.relative_to(protos).as_posix() for path in sources.glob("*.proto"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{protos}",
            f"--python_out={stubs}",
            f"--grpc_python_out={stubs}",
            *files,
        ],
        check=True,
    )
