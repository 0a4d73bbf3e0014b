"""What `make run` shows on a machine without a key and without a terminal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-u", "-m", "examples.demo"]


@pytest.fixture
def environment() -> dict[str, str]:
    hidden = ("OPENAI_API_KEY", "ENTRACTE_EXAMPLE_MODEL")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def ended(pid: int, *, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.timeout(120)
def test_it_plays_the_conversation_through_two_crashes(environment: dict[str, str]) -> None:
    done = subprocess.run(
        COMMAND,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    order = [
        "The model is a script, because OPENAI_API_KEY is not set.",
        "QUESTION | Which order is it about?",
        "kill -9",
        'APPROVE? | refund {"order_id":"7","amount_cents":12900}',
        "Done: 129.00 are on their way to you.",
        "declined | the lamp was delivered",
        "kill -9",
        "(attempt 2:",
        "Order 9, the teapot, is lost by the carrier.",
        "QUESTION | Close the account of Ada",
        "The account of Ada is closed.",
        "approve | refund, by local",
    ]
    position = 0
    for words in order:
        position = said.find(words, position)
        assert position >= 0, f"{words!r} is not where it should be in:\n{said}"
    assert said.count('"refunded_cents":12900') == 1


@pytest.mark.timeout(60)
def test_it_leaves_no_server_behind_when_it_is_ended(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        COMMAND, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        first = demo.stdout.readline()
        server = int(first.partition("pid ")[2].partition(")")[0])
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(30) == 143
    assert ended(server, within=5)
