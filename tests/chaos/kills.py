"""Plays the kill matrix: `python -m tests.chaos.kills --kills 1000 --seed 1`."""

import argparse
import asyncio
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.databases import Databases, on_postgres, on_sqlite
from tests.chaos.matrix import deal
from tests.chaos.playing import AT_ONCE, Report, play_all, play_quietly
from tests.postgres import Postgres

SIZES = (1, 2, 3)


async def strike(kills: int, seed: int, only: int | None, at_once: int, databases: Databases) -> Report:
    """Play it; raises what went wrong."""
    plays = deal(seed, kills, SIZES)
    if only is not None:
        plays = [play for play in plays if play.number == only]
    with tempfile.TemporaryDirectory() as folder:
        references = await play_quietly(Path(folder), f"sqlite:///{folder}/db")
    return await play_all(plays, databases, seed, references, at_once=at_once)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many, about, on each store")
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--play", type=int, help="this one alone")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="plays at the same time")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        stores: dict[str, Databases] = {"sqlite": on_sqlite}
        if given.store != "sqlite":
            stores["postgres"] = on_postgres(stack.enter_context(Postgres()))
        for name, databases in stores.items():
            if given.store in (name, "both"):
                report = asyncio.run(strike(given.kills, given.seed, given.play, given.at_once, databases))
                print(f"{name}: {report}", flush=True)


if __name__ == "__main__":
    main()
