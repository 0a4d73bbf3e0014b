"""The supervisor, as a process of its own, with workers that behave as a test wants."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.app.processes import environment, gone, until

ROOT = Path(__file__).resolve().parents[2]


class Supervised:
    """A supervisor that runs, and what its folder tells about the workers."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process = process
        self._folder = folder

    @property
    def output(self) -> str:
        """What supervisor and workers printed so far."""
        return (self._folder / "output").read_text()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The supervisor's log lines of an event, oldest first."""
        lines = [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def journal(self, event: str = "") -> list[dict[str, Any]]:
        """What the workers wrote down, oldest first."""
        path = self._folder / "journal"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not event or line["event"] == event]

    @property
    def pids(self) -> dict[int, int]:
        """The newest worker at each place that became ready."""
        return {line["worker"]: line["pid"] for line in self.logged("worker_ready")}

    def behave(self, behaviour: str) -> None:
        """What workers do that start from now on."""
        (self._folder / "behaviour").write_text(behaviour)

    def let_go(self) -> None:
        """Patient workers may end, and those that wait may begin."""
        (self._folder / "go").touch()

    async def until(self, condition: Callable[[], object]) -> None:
        """Until something is so."""
        await until(condition, lambda: f"{self.output}\n{self.journal()}")

    async def started(self) -> None:
        """Until people were told so."""
        await self.until(lambda: "started [" in self.output)

    async def ended(self) -> int:
        """The exit code, once supervisor and workers are gone."""
        await self.until(lambda: self.process.poll() is not None)
        await self.until(lambda: gone(*(line["pid"] for line in self.journal("begins"))))
        return self.process.returncode


@asynccontextmanager
async def supervised(
    folder: Path,
    behaviour: str = "serves",
    *,
    count: int = 2,
    stdin: int = subprocess.DEVNULL,
    **settings: Any,
) -> AsyncIterator[Supervised]:
    """A supervisor with `count` workers; it and they are gone at the end, however the test goes."""
    values = {"count": count, "stop_timeout": 5.0, **settings}
    (folder / "behaviour").write_text(behaviour)
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [sys.executable, "-m", "tests.app.stubs", "supervisor", str(folder), json.dumps(values)],
            cwd=ROOT, env=environment(), stdin=stdin, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    it = Supervised(process, folder)
    try:
        yield it
    finally:
        process.kill()
        process.wait()
        for line in it.journal("begins"):
            if not gone(line["pid"]):
                os.kill(line["pid"], signal.SIGKILL)


async def test_people_are_told_once_all_serve_and_workers_stop_when_told(tmp_path: Path) -> None:
    async with supervised(tmp_path, count=3) as it:
        await it.started()
        assert sorted(it.pids) == [1, 2, 3]
        it.process.send_signal(signal.SIGTERM)
        assert await it.ended() == 0
        assert len(it.journal("stopped")) == 3
        assert it.output.count("started [('stub', 'serves')]") == 1
        assert it.output.count("stopping") == 1


async def test_a_killed_worker_is_replaced_and_the_others_are_left_alone(tmp_path: Path) -> None:
    async with supervised(tmp_path) as it:
        await it.started()
        before = it.pids
        os.kill(before[1], signal.SIGKILL)
        await it.until(lambda: it.pids[1] != before[1])
        assert it.pids[2] == before[2]
        (death,) = it.logged("worker_died")
        assert (death["worker"], death["pid"], death["signal"]) == (1, before[1], "SIGKILL")
        assert death["level"] == "error"
        assert it.output.count("started [") == 1


async def test_the_living_are_told_who_is_dead(tmp_path: Path) -> None:
    """At once; when nobody lives, the next one is."""
    async with supervised(tmp_path, count=3) as it:
        await it.started()
        dead = it.pids[1]
        os.kill(dead, signal.SIGKILL)
        await it.until(lambda: len(it.journal(f"buries process-{dead}")) == 2)
        assert {line["worker"] for line in it.journal(f"buries process-{dead}")} == {2, 3}
        await it.until(lambda: it.pids[1] != dead)
        it.process.send_signal(signal.SIGSTOP)
        all_dead = it.pids.values()
        for pid in all_dead:
            os.kill(pid, signal.SIGKILL)
        await it.until(lambda: gone(*all_dead))
        it.process.send_signal(signal.SIGCONT)
        for pid in all_dead:
            await it.until(lambda pid=pid: it.journal(f"buries process-{pid}"))  # type: ignore[misc]


async def test_workers_that_keep_dying_stop_the_server(tmp_path: Path) -> None:
    """The others stop gracefully, and people are told why."""
    async with supervised(tmp_path, failures=3) as it:
        await it.started()
        it.behave("dies")
        os.kill(it.pids[2], signal.SIGKILL)
        assert await it.ended() == 1
        assert [line.get("exit_code") for line in it.logged("worker_died")] == [None, 3, 3]
        assert "gave up: 3 workers in a row died before they had served for 30 s" in it.output
        assert [line["worker"] for line in it.journal("stopped")] == [1]


async def test_a_worker_that_dies_a_few_times_is_given_another_chance(tmp_path: Path) -> None:
    async with supervised(tmp_path, failures=3) as it:
        await it.started()
        it.behave("dies")
        os.kill(it.pids[1], signal.SIGKILL)
        await it.until(lambda: len(it.journal("begins")) == 3)
        it.behave("serves")
        await it.until(lambda: len(it.logged("worker_ready")) == 3)
        assert it.process.poll() is None


async def test_workers_that_had_served_for_long_may_die_as_often_as_they_do(tmp_path: Path) -> None:
    async with supervised(tmp_path, failures=2, early=0.0) as it:
        await it.started()
        for _ in range(4):
            dead = it.pids[1]
            os.kill(dead, signal.SIGKILL)
            await it.until(lambda dead=dead: it.pids[1] != dead)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("behaviour", "code", "message"),
    [
        ("dies", 3, "gave up: \n"),
        ("killed", 1, "gave up: the first worker was ended by SIGKILL before it served\n"),
        ("never-ready", 1, "gave up: the first worker did not serve within 0.5 s\n"),
    ],
)
async def test_what_does_not_start_is_tried_once(
    tmp_path: Path, behaviour: str, code: int, message: str
) -> None:
    """What the worker said of it is enough: its exit code is passed on."""
    async with supervised(tmp_path, behaviour, count=3, start_timeout=0.5) as it:
        assert await it.ended() == code
        assert message in it.output
        assert len(it.journal("begins")) == 1
        assert "started" not in it.output


async def test_a_signal_while_it_starts_stops_it(tmp_path: Path) -> None:
    async with supervised(tmp_path, "never-ready") as it:
        await it.until(lambda: it.journal("begins"))
        it.process.send_signal(signal.SIGTERM)
        assert await it.ended() == 0
        assert "started" not in it.output


# ---- stopping ----


async def test_workers_get_their_time(tmp_path: Path) -> None:
    """An interrupt that comes twice at once is one: from a terminal, and passed on by a parent."""
    async with supervised(tmp_path, "patient") as it:
        await it.started()
        it.process.send_signal(signal.SIGINT)
        await it.until(lambda: "stopping" in it.output)
        it.process.send_signal(signal.SIGINT)
        await it.until(lambda: len(it.journal("told")) == 2)
        it.let_go()
        assert await it.ended() == 0
        assert len(it.journal("stopped")) == 2


async def test_workers_do_not_get_more_than_their_time(tmp_path: Path) -> None:
    async with supervised(tmp_path, "stubborn", stop_timeout=0.2) as it:
        await it.started()
        it.process.send_signal(signal.SIGTERM)
        assert await it.ended() == 1
        assert {line["worker"] for line in it.logged("worker_killed")} == {1, 2}


async def test_a_second_interrupt_ends_them_at_once(tmp_path: Path) -> None:
    async with supervised(tmp_path, "stubborn", stop_timeout=3600.0) as it:
        await it.started()
        it.process.send_signal(signal.SIGINT)
        await it.until(lambda: len(it.journal("told")) == 2)
        while not gone(*it.pids.values()):
            it.process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.05)
        assert await it.ended() == 130


@pytest.mark.parametrize("behaviour", ["serves", "stuck", "never-ready"])
async def test_workers_do_not_outlive_their_supervisor(tmp_path: Path, behaviour: str) -> None:
    """Those that can stop gracefully; one that is stuck ends all the same, also while it starts."""
    async with supervised(tmp_path, behaviour, hang_timeout=0.0) as it:
        if behaviour == "never-ready":
            await it.until(lambda: it.journal("begins"))
        else:
            await it.started()
        if behaviour == "stuck":
            await it.until(lambda: len(it.journal("stuck")) == 2)
        it.process.kill()
        await it.ended()
        assert len(it.journal("stopped")) == (2 if behaviour == "serves" else 0)
        assert it.output.count("did not stop in time") == (2 if behaviour == "stuck" else 0)


# ---- at a terminal ----


@asynccontextmanager
async def at_terminal(folder: Path) -> AsyncIterator[tuple[Supervised, BinaryIO]]:
    """A supervisor at a terminal of its own, and who sits there."""
    master, slave = pty.openpty()
    with os.fdopen(master, "wb", buffering=0) as person:
        async with supervised(folder, "patient", stdin=slave) as it:
            os.close(slave)
            await it.started()
            yield it, person


async def test_control_c_lets_workers_finish(tmp_path: Path) -> None:
    """It goes to everybody in the foreground; they are not."""
    async with at_terminal(tmp_path) as (it, person):
        person.write(b"\x03")
        await it.until(lambda: len(it.journal("told")) == 2)
        it.let_go()
        assert await it.ended() == 0
        assert len(it.journal("stopped")) == 2
        assert "Traceback" not in it.output


async def test_a_terminal_that_closes_stops_the_server(tmp_path: Path) -> None:
    """Its hang-up is not the one that asks for new workers."""
    async with at_terminal(tmp_path) as (it, person):
        it.let_go()
        person.close()
        assert await it.ended() == 0
        assert len(it.journal("stopped")) == 2
        assert not it.logged("workers_restart")


# ---- hung workers ----


async def test_a_worker_whose_loop_is_stuck_is_replaced_and_says_where_it_was(tmp_path: Path) -> None:
    async with supervised(tmp_path, hang_timeout=0.6) as it:
        await it.started()
        it.behave("stuck")
        os.kill(it.pids[1], signal.SIGKILL)
        await it.until(lambda: it.logged("worker_ready")[-1]["pid"] != it.pids[2] and len(it.pids) == 2)
        await it.until(lambda: len(it.logged("worker_ready")) == 3)
        stuck = it.pids[1]
        it.behave("serves")
        await it.until(lambda: it.pids[1] != stuck)
        (hung,) = it.logged("worker_hung")
        assert (hung["worker"], hung["pid"]) == (1, stuck)
        assert it.logged("worker_died")[-1]["signal"] == "SIGABRT"
        assert re.search(r"stubs\.py.* in stuck_here", it.output)


async def test_a_suspended_worker_is_replaced(tmp_path: Path) -> None:
    async with supervised(tmp_path, hang_timeout=0.6) as it:
        await it.started()
        before = it.pids
        os.kill(before[2], signal.SIGSTOP)
        await it.until(lambda: it.pids[2] != before[2])
        assert gone(before[2])
        assert it.pids[1] == before[1]


async def test_a_supervisor_that_was_suspended_blames_nobody(tmp_path: Path) -> None:
    async with supervised(tmp_path, hang_timeout=0.6) as it:
        await it.started()
        before = it.pids
        it.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.0)  # longer than a worker may be silent
        it.process.send_signal(signal.SIGCONT)
        os.kill(before[2], signal.SIGSTOP)  # found out after the other one has been asked again
        await it.until(lambda: it.pids[2] != before[2])
        assert it.pids[1] == before[1]
        assert [line["worker"] for line in it.logged("worker_hung")] == [2]


# ---- replacing ----


async def test_on_a_hangup_workers_are_replaced_one_after_another(tmp_path: Path) -> None:
    """Each is told to stop when its successor is ready, and there is one more at most."""
    async with supervised(tmp_path) as it:
        await it.started()
        before = it.pids
        it.behave("patient")
        it.process.send_signal(signal.SIGHUP)
        await it.until(lambda: it.logged("workers_restarted"))
        assert not {*before.values()} & {*it.pids.values()}
        assert [(line["event"], line["worker"]) for line in it.journal()[2:]] == [
            ("begins", 1), ("told", 1), ("stopped", 1), ("begins", 2), ("told", 2), ("stopped", 2),
        ]  # fmt: skip
        assert not it.logged("worker_died")
        it.let_go()
        it.process.send_signal(signal.SIGTERM)
        assert await it.ended() == 0


async def test_successors_that_do_not_work_leave_the_old_ones_at_work(tmp_path: Path) -> None:
    async with supervised(tmp_path, failures=2) as it:
        await it.started()
        before = it.pids
        it.behave("dies")
        for _ in range(3):  # it is no reason to give up either
            seen = len(it.logged("workers_restart_stopped"))
            it.process.send_signal(signal.SIGHUP)
            await it.until(lambda seen=seen: len(it.logged("workers_restart_stopped")) > seen)  # type: ignore[misc]
        assert it.pids == before
        assert it.process.poll() is None
        it.behave("serves")
        it.process.send_signal(signal.SIGHUP)
        await it.until(lambda: it.logged("workers_restarted"))
        assert not {*before.values()} & {*it.pids.values()}


async def test_a_worker_that_dies_while_its_successor_starts_has_one_successor(tmp_path: Path) -> None:
    async with supervised(tmp_path) as it:
        await it.started()
        before = it.pids
        it.behave("waits")
        it.process.send_signal(signal.SIGHUP)
        await it.until(lambda: len(it.journal("begins")) == 3)
        os.kill(before[1], signal.SIGKILL)
        await it.until(lambda: gone(before[1]))
        it.let_go()
        await it.until(lambda: it.logged("workers_restarted"))
        assert [line["worker"] for line in it.journal("begins")] == [1, 2, 1, 2]
        it.process.send_signal(signal.SIGTERM)
        assert await it.ended() == 0
        assert len(it.journal("begins")) == 4
