"""The clock of leases."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from entracte_server.store.sqlite import clock


@pytest.fixture(autouse=True)
def _ask_anew() -> Iterator[None]:
    clock.boot_id.cache_clear()
    yield
    clock.boot_id.cache_clear()


def test_it_goes_on() -> None:
    first = clock.now_ms()
    time.sleep(0.005)
    assert first + 5 <= clock.now_ms()


def test_without_a_boot_id_it_is_the_wall_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clock, "_BOOT_ID", tmp_path / "none")
    assert clock.boot_id() == ""
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="Linux")
def test_on_linux_it_counts_from_the_boot_on() -> None:
    assert len(clock.boot_id()) == 36
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(clock.now_ms() / 1000 - uptime) < 60
