"""The clock of leases: the same for all processes of one machine, and never set back.

It counts from the machine's last boot, while it sleeps too, so its readings are compared only when they
are of the same boot. Where no boot id is to be had it is the wall clock, which is the same for all
processes as well and goes on over a boot, but may be set.
"""

import sys
import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """Tells one boot of the machine from another; empty where that cannot be told."""
    if sys.platform == "linux":
        try:
            return _BOOT_ID.read_text("ascii").strip()
        except OSError:
            pass
    return ""


def now_ms() -> int:
    """Milliseconds on the clock that all processes with this `boot_id` share."""
    if sys.platform == "linux" and boot_id():
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.time_ns() // 1_000_000
