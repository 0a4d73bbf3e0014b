"""Plays the kill matrix: `python -m tests.chaos.kills --kills 1000 --seed 1`."""

import argparse
import asyncio
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.databases import Databases, on_postgres, on_sqlite
from tests.chaos.matrix import deal
from tests.chaos.playing import AT_ONCE, Report, play_all, play_quietly
from tests.chaos.stories import Story
from tests.postgres import Postgres

SIZES = (1, 2, 3)


async def strike(
    store: str,
    databases: Databases,
    references: Mapping[str, Story],
    *,
    seed: int,
    kills: int,
    sizes: Sequence[int] = SIZES,
    only: int | None = None,
    at_once: int = AT_ONCE,
) -> Report:
    """Play the matrix on the store of this name; raises what went wrong."""
    plays = [play for play in deal(seed, kills, sizes) if only in (None, play.number)]
    repeat = f"--store {store} --seed {seed} --kills {kills} --sizes {' '.join(map(str, sizes))}"
    return await play_all(plays, databases, seed, references, repeat=repeat, at_once=at_once)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many, about, on each store")
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="processes of a fleet, in turn")
    parser.add_argument("--play", type=int, help="this one alone")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="plays at the same time")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        references = asyncio.run(play_quietly(Path(folder), f"sqlite:///{folder}/db"))
        stores: dict[str, Databases] = {"sqlite": on_sqlite}
        if given.store != "sqlite":
            stores["postgres"] = on_postgres(stack.enter_context(Postgres()))
        for name, databases in stores.items():
            if given.store in (name, "both"):
                work = strike(
                    name,
                    databases,
                    references,
                    seed=given.seed,
                    kills=given.kills,
                    sizes=given.sizes,
                    only=given.play,
                    at_once=given.at_once,
                )
                print(f"{name}: {asyncio.run(work)}", flush=True)


if __name__ == "__main__":
    main()
