"""Generates the TypeScript stubs: `python generate.py OUTPUT_FOLDER`.

The compiler is grpcio-tools', the plugin protoc-gen-es of node_modules; both are pinned in lock files, so
that the drift check compares bytes. Besides the contract there are google.rpc's error details, which statuses
carry.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto"
SITE = Path(sysconfig.get_path("purelib"))


def main(output: Path) -> None:
    """Write the stubs below `output`."""
    for stale in output.rglob("*_pb.ts"):
        stale.unlink()
    output.mkdir(parents=True, exist_ok=True)
    files = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.glob("entracte/v1/*.proto"))
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{PROTO}",
        f"-I{SITE}",
        f"--plugin=protoc-gen-es={HERE / 'node_modules' / '.bin' / 'protoc-gen-es'}",
        f"--es_out={output}",
        "--es_opt=target=ts,import_extension=js",
        *files,
        "google/rpc/error_details.proto",
    ]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
