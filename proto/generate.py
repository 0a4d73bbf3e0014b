"""Generates the Python stubs: `python proto/generate.py [output folder]`.

One generator for everybody (grpcio-tools with mypy-protobuf, both pinned in the lock file), so that
the drift check compares bytes. Run it with the project's virtual environment.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"


def main(output: Path) -> None:
    """Write the stubs of every proto file below `output`/entracte/v1."""
    files = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.glob("entracte/v1/*.proto"))
    package = output / "entracte" / "v1"
    package.mkdir(parents=True, exist_ok=True)
    for stale in package.glob("*_pb2*"):
        stale.unlink()
    out = str(output)
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{PROTO}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *files,
    ]
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
    for path in package.glob("*_pb2_grpc.py*"):
        if "class " not in path.read_text():
            path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "client" / "python")
