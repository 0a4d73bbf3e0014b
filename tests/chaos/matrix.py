"""The matrix: at which points processes are killed, stopped, or told that their store is away, dealt out
by a seed into plays that can be repeated."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.chaos.traps import Action, Deed, Trap, When

COMMITS = (
    "create",
    "chunks",
    "step",
    "started",
    "done",
    "opened",
    "park",
    "end",
    "decide",
    "cancel",
    "expire",
)
"""What commits something of a run."""

RECOVERING = ("take_over", "attempt", "enter")
"""What happens only after somebody died."""

ALL: tuple[When, ...] = ("before", "during", "after")
AROUND: tuple[When, ...] = ("before", "after")

Stroke = Deed | Literal["drain"]
"""What happens at a trap, or that a process is told to stop, at any moment."""

Card = tuple[Stroke, str, When]

KILLS: tuple[Card, ...] = (
    *(("kill", point, when) for point in (*COMMITS, *RECOVERING, "renew", "body") for when in ALL),
    *(("kill", "release", when) for when in ALL),  # while it hands its runs over
    ("kill", "model", "before"),
    ("kill", "moment", "during"),  # at any moment, between all of these
)

STOPS: tuple[Card, ...] = tuple(
    ("stop", point, when) for point in (*COMMITS, "renew", "body") for when in AROUND
)
"""A process that sleeps for longer than its lease, while others go on."""

FAULTS: tuple[Card, ...] = tuple(("fail", point, when) for point in (*COMMITS, "renew") for when in AROUND)
"""A store that is away for a moment, or that did it all the same."""

OFTEN = {"chunks": 12, "step": 4, "started": 4, "done": 5, "opened": 3, "park": 4, "body": 5, "model": 4}
"""How often a point is passed in the time that a few runs take; others once or twice."""

LONGEST_DELAY = 0.002
"""A commit takes less than that, most of the time. In seconds."""

BLOWS_PER_PLAY = 8


@dataclass(frozen=True)
class Blow:
    """What a fleet has to bear. The deed is done at the `count`th time that a process comes to the point;
    `delay` as in `Action`, or how long one that was stopped sleeps beyond its lease, in seconds."""

    deed: Stroke
    point: str
    when: When
    count: int
    delay: float

    @property
    def trap(self) -> Trap:
        """Where it waits, for whichever process comes first."""
        return Trap(self.point, self.when)

    @property
    def action(self) -> Action:
        """What the trap does."""
        assert self.deed != "drain"
        return Action(self.deed, self.count, self.delay)

    @property
    def recovering(self) -> bool:
        """Whether it can only hit somebody who takes over from the dead."""
        return self.point in RECOVERING

    def __str__(self) -> str:
        return f"{self.deed}:{self.trap.name}:{self.count}"


CUT = Blow("kill", "chunks", "after", 3, 0.0)
"""After this somebody has to make another attempt at an answer."""


@dataclass(frozen=True)
class Play:
    """A fleet of `size` processes and the blows that it gets, one after the other."""

    number: int
    size: int
    blows: tuple[Blow, ...]

    def __str__(self) -> str:
        return f"play {self.number}, {self.size} processes: " + " ".join(map(str, self.blows))


def deal(seed: int, kills: int, sizes: Sequence[int]) -> list[Play]:
    """Plays with about so many kills in all, and half as many of the other blows; each card as often
    as any other of its kind. `sizes` are those of the fleets, in turn."""
    rng = random.Random(seed)
    cards = _cards(rng, KILLS, kills) + _cards(rng, STOPS, kills // 6) + _cards(rng, FAULTS, kills // 6)
    cards += [("drain", "moment", "during")] * (kills // 10)
    rng.shuffle(cards)
    plays = []
    for number, start in enumerate(range(0, len(cards), BLOWS_PER_PLAY)):
        hand = [_blow(rng, *card) for card in cards[start : start + BLOWS_PER_PLAY]]
        plays.append(Play(number, sizes[number % len(sizes)], _in_order(hand)))
    return plays


def _cards(rng: random.Random, deck: Sequence[Card], count: int) -> list[Card]:
    cards: list[Card] = []
    while len(cards) < count:
        cards += rng.sample(deck, len(deck))
    return cards[:count]


def _blow(rng: random.Random, deed: Stroke, point: str, when: When) -> Blow:
    count = rng.randint(1, OFTEN.get(point, 1))
    longest = 1.0 if point == "moment" or deed == "stop" else LONGEST_DELAY
    return Blow(deed, point, when, count, rng.uniform(0.0, longest))


def _in_order(hand: Sequence[Blow]) -> tuple[Blow, ...]:
    """Somebody must have died before others can take over from him. No run is taken over so often
    without getting any further that it would be given up: at most two of these follow each other."""
    others = [blow for blow in hand if not blow.recovering and blow.deed != "kill"]
    plain = [blow for blow in hand if not blow.recovering and blow.deed == "kill"]
    recovering = [blow for blow in hand if blow.recovering]
    ordered: list[Blow] = []
    while plain or recovering:
        after, recovering = recovering[:2], recovering[2:]
        # There is another attempt at an answer where one was cut.
        cut = any(blow.point == "attempt" for blow in after)
        ordered.append(CUT if cut or not plain else plain.pop())
        ordered += after
    return (*others, *ordered)
