"""What the crash test kills: writes to a store without end and says on stdout what was acknowledged.

Each line is one JSON list. Usage: python -m tests.store.kill_child URL NUMBER
"""

import asyncio
import json
import sys

from msgspec.structs import replace

from entracte_server.domain.runs import Outcome
from entracte_server.store.base import CreateRun, Store
from entracte_server.store.opening import open_store
from entracte_server.testing.store_conformance.builders import (
    SPEC,
    a_call,
    a_decide,
    a_park,
    a_pending,
    a_request,
    a_run,
    a_step,
    a_write,
    an_end,
    chunks,
)


def say(*what: object) -> None:
    print(json.dumps(what), flush=True)


async def life(store: Store, name: str) -> None:
    """A run from start to end, over a suspension; each acknowledgement is reported."""
    run = a_run(run_id=name, owner="child")
    await store.create_run(CreateRun(run, SPEC, None, a_request(request_id=name)))
    say("created", name)
    for number in range(1, 6):
        await store.write(a_write(run, chunks=chunks(number, number)))
        say("chunks", name, number)
    call = a_call(run, call_id=f"{name}-call")
    pending = a_pending(run, call, pending_call_id=f"{name}-pending")
    await store.write(
        a_write(run, chunks=chunks(6, 7), steps=(a_step(),), calls=(call,), opened=(pending,), park=a_park(8))
    )
    say("parked", name, 8)
    decided = await store.decide(a_decide(pending, call, owner="child", decision_id=f"{name}-decision"))
    say("decided", name, decided.run.fence)
    done = replace(call, state="done", outcome=Outcome("result", "1"))
    await store.write(a_write(decided.run, chunks=chunks(9, 9), calls=(done,)))
    say("chunks", name, 9)
    await store.write(a_write(decided.run, chunks=chunks(10, 12), end=an_end()))
    say("ended", name, 12)


async def worker(store: Store, prefix: str) -> None:
    number = 0
    while True:
        await life(store, f"{prefix}-{number}")
        number += 1


async def main() -> None:
    store = await open_store(sys.argv[1])
    say("open")
    await asyncio.gather(*(worker(store, f"{sys.argv[2]}-{number}") for number in range(8)))


if __name__ == "__main__":
    asyncio.run(main())
