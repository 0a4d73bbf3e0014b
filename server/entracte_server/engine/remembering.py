"""What a run knows of its thread, and what it adds to it.

What is remembered is decided once, when the run starts, and stored as positions in the thread: every
later segment, in whatever process, reads the same messages again. Messages are added in the
transactions of the run, so that a thread never shows more or less than happened.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from entracte_server.agents.agent import Agent
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.agents.working_memory import TOOL_NAME
from entracte_server.domain.memory import DEFAULT_HISTORY_TOKENS, DEFAULT_LAST_MESSAGES, MemoryOptions
from entracte_server.domain.messages import Message
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import CallRow, Outcome, Remembered, RunSpec, Snapshot
from entracte_server.domain.threads import ThreadMessage
from entracte_server.engine import history, older, prompt, working_memory
from entracte_server.engine.recall import text_of
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.settings import EngineSettings
from entracte_server.engine.settle import HandedOver
from entracte_server.store.base import NotFound, Store
from entracte_server.store.threads import MessageRange, ThreadClaim

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

PAGE = 100
"""Messages that are read at once."""

FIRST_PAGE = 10
"""Messages that are read first, while nobody knows how large they are."""

MAX_BACK = 1000
"""Messages that are looked through for the beginning of an exchange."""


class Memory:
    """The memory of one segment of a run."""

    def __init__(self, run: "RunExecution", options: MemoryOptions, snapshot: Snapshot) -> None:
        self._run = run
        self._log = run.log
        self._options = options
        self._asked = snapshot.spec
        self._processing = snapshot.processing
        self._remembered = snapshot.remembered
        self._saved: dict[str, ThreadMessage] = {}
        self._said_before: dict[str, int] = {}
        self._is_loaded = False
        self._notes = working_memory.notes_of(run, options)

    async def load(self) -> None:
        """Find what the run remembers, at its first segment, and read it. Raises `StoreUnavailable`."""
        run = self._run
        await self._keep_to_own_ids()
        if self._remembered is None:
            self._remembered = await self._find()
            self._log.stage(remembered=self._remembered)
        elif self._saves:
            await self._find_saved()
        self._is_loaded = True
        if self._notes is not None:
            self._notes.version = self._remembered.working_version
        asked = self._told_once(self._remembered)
        remembered = await spec_with(
            run.services.store, run.log.key[0], asked, self._options, self._remembered
        )
        run.spec = prompt.processed(remembered, self._processing)

    async def _keep_to_own_ids(self) -> None:
        """Nothing that was said is written over: a message by whose id another run has said something is
        that, where it says the same, and else gets another id."""
        run, asked = self._run, self._asked
        said = await called_alike(run.services.store, run.log.key[0], self._options, asked.input)
        own = list(asked.input)
        for index, message in enumerate(own):
            before = said.get(message.id)
            if before is None or before.run_id == run.row.run_id:
                continue
            own_id = ""
            if _say_the_same(before, message):
                own_id = f"{asked.message_id}-again-{index + 1}"
                self._said_before[own_id] = before.position
            own[index] = msgspec.structs.replace(message, id=own_id)
        self._asked = msgspec.structs.replace(asked, input=tuple(own))

    def _told_once(self, remembered: Remembered) -> RunSpec:
        """What the run was asked, without what its history tells: some clients send all of a conversation
        again. Where nothing else is asked, it is left as it is."""
        kept: list[Message] = []
        told = False
        for message in self._asked.input:
            if message.role != "tool":  # results go with their calls
                position = self._said_before.get(message.id, 0)
                told = bool(position) and remembered.first <= position <= remembered.last
            if not told:
                kept.append(message)
        if all(message.role != "user" for message in kept):
            return self._asked
        return msgspec.structs.replace(self._asked, input=tuple(kept))

    async def _find(self) -> Remembered:
        store, tenant = self._run.services.store, self._run.log.key[0]
        options = self._options
        count, budget = defaults(self._run.agent)
        if options.last_messages is not None:
            count = options.last_messages
        if options.max_history_tokens is not None:
            budget = options.max_history_tokens
        try:
            found = await last_messages(store, tenant, options, count, budget)
        except NotFound:  # nothing was said, and the run only reads
            found = []
        found = fitting(found, budget)
        recalled = await self._recalled(found, budget - sum(map(history.tokens, found)))
        noted, version = await self._noted()
        return Remembered(
            first=found[0].position if found else 0,
            last=found[-1].position if found else 0,
            recalled=recalled.places,
            working=noted,
            working_version=version,
            warning=recalled.warning,
            untitled=await self._is_untitled(),
        )

    async def _recalled(self, recent: list[ThreadMessage], budget: int) -> older.Recalled:
        if self._run.leaving:
            raise HandedOver
        async with self._run.until_leaving():
            return await older.recall(self._run, self._options, recent, budget)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the first answer of the run is to warn of."""
        warning = "" if self._remembered is None else self._remembered.warning
        return (warning,) if warning else ()

    async def _noted(self) -> tuple[str | None, int]:
        """What the model is told of the working memory, and its version."""
        agent, options = self._run.agent, self._options
        working = working_memory.chosen(agent, options)
        if working is None:
            return None, 0
        row = await working_memory.found(self._run.services.store, self._run.log.key[0], working, options)
        told = working_memory.told(working, row.content, may_change=not options.read_only)
        return told, row.version

    async def _is_untitled(self) -> bool:
        """Whether the thread is to be given a title after the reply."""
        options, memory = self._options, self._run.agent.memory
        wanted = options.generate_title
        if wanted is None:
            wanted = memory is not None and memory.generate_title
        if not wanted or options.read_only or not options.save_messages:
            return False
        try:
            view = await self._run.services.store.get_thread(self._run.log.key[0], options.thread_id)
        except NotFound:  # it was deleted
            return False
        return not view.thread.title

    @property
    def untitled(self) -> bool:
        """Whether the thread is to be given a title after the reply."""
        return self._remembered is not None and self._remembered.untitled

    async def refusal(self, tool: Tool, arguments: Arguments, call: CallRow) -> Outcome | None:
        """Why a call that would change the working memory is not executed. Raises `StoreUnavailable`."""
        if self._notes is None or tool.name != TOOL_NAME:
            return None
        return await self._notes.refusal(arguments, call)

    def came_to(self, call: CallRow, outcome: Outcome) -> None:
        """What an executed call came to, which is about to be written; with it what it noted down."""
        if self._notes is None or self._remembered is None or call.tool_name != TOOL_NAME:
            return
        self._notes.came_to(call, outcome)
        self._remembered = msgspec.structs.replace(self._remembered, working_version=self._notes.version)
        self._log.stage(remembered=self._remembered)

    async def _find_saved(self) -> None:
        """What an earlier segment added: it keeps its times, and is not written again unless it changed."""
        run, where = self._run, MessageRange(run_id=self._run.row.run_id)
        store, tenant = run.services.store, run.log.key[0]
        page: list[ThreadMessage] | None = None
        while page is None or page:
            try:
                page = await store.read_messages(tenant, self._options.thread_id, where, limit=PAGE)
            except NotFound:  # it was deleted
                return
            for message in page:
                self._saved[message.id] = msgspec.structs.replace(message, position=0)
                where = msgspec.structs.replace(where, after=message.position)

    def keep_input(self) -> None:
        """What the run was asked becomes part of the thread with its next write."""
        self._stage(self._input())

    def keep_steps(self) -> None:
        """As `keep_input`, with what was answered so far."""
        self._stage([*self._input(), *self._steps(None)])

    def keep_all(self, error: RunError | None) -> None:
        """As `keep_steps`, at the end of the run, which may be an `error`. One that ends without having been
        gone on with has nothing new but what became of its last step."""
        if self._remembered is not None and not self._is_loaded:
            self._stage(self._steps(error)[-1:])
            return
        self._stage([*self._input(), *self._steps(error)])

    def _input(self) -> list[ThreadMessage]:
        run = self._run
        if run.processing is not None and not run.processing.input_passed:
            return []  # nobody knows whether it may be kept
        asked = history.from_input(
            run.spec.input,
            prefix=run.spec.message_id,
            run_id=run.row.run_id,
            author=run.row.principal,
            time=run.row.create_time,
        )
        return [message for message in asked if message.id not in self._said_before]

    def _steps(self, error: RunError | None) -> list[ThreadMessage]:
        run, now = self._run, now_ms()
        found = []
        for record in run.steps:
            last = record is run.steps[-1]
            message = history.from_step(
                record,
                run.calls_of(record.step),
                run_id=run.row.run_id,
                author=run.agent.id,
                time=now,
                error=error if last else None,
            )
            if message is not None:
                found.append(message)
        if error is not None and not run.steps:
            found.append(
                ThreadMessage(
                    id=run.message_id,
                    role="assistant",
                    parts=(history.error_part(error),),
                    create_time=now,
                    author=run.agent.id,
                    run_id=run.row.run_id,
                    step=run.step,
                    aborted=True,
                )
            )
        return found

    @property
    def _saves(self) -> bool:
        return self._options.save_messages and not self._options.read_only

    def _stage(self, messages: list[ThreadMessage]) -> None:
        if not self._saves:
            return
        changed = []
        for message in messages:
            known = self._saved.get(message.id)
            if known is not None:  # its time is that of its first version
                message = msgspec.structs.replace(message, create_time=known.create_time)
            if message != known:
                self._saved[message.id] = message
                changed.append(message)
        self._log.stage(messages=changed)


def _say_the_same(stored: ThreadMessage, message: Message) -> bool:
    """Whether a message is one that is stored; of answers, what was called beside the text is left aside."""
    if stored.role == "user":
        return message.role == "user" and stored.parts == message.parts
    return stored.role == message.role and text_of(stored) == text_of(message)


async def called_alike(
    store: Store, tenant: str, options: MemoryOptions, messages: Iterable[Message]
) -> dict[str, ThreadMessage]:
    """What was said on a thread by the ids that some messages have. Raises `StoreUnavailable`."""
    ids = list(dict.fromkeys(message.id for message in messages if message.id))
    found: dict[str, ThreadMessage] = {}
    for start in range(0, len(ids), PAGE):
        where = MessageRange(ids=tuple(ids[start : start + PAGE]), resource_id=options.resource_id)
        try:
            page = await store.read_messages(tenant, options.thread_id, where, limit=PAGE)
        except NotFound:  # it was deleted, or was never made
            break
        found.update((message.id, message) for message in page)
    return found


async def last_messages(
    store: Store, tenant: str, options: MemoryOptions, count: int, budget: int
) -> list[ThreadMessage]:
    """The last messages of a run's thread: `count` of them and those before these that belong to the same
    exchange, or fewer where these alone take more than `budget` tokens. Raises `NotFound`."""
    found: list[ThreadMessage] = []
    batch = FIRST_PAGE
    while count > len(found) and budget >= 0:
        page = await _before(store, tenant, options, found, min(batch, count - len(found)))
        if not page:
            break
        found = [*page, *found]
        budget -= sum(map(history.tokens, page))
        batch = min(2 * batch, PAGE)
    looked, batch = 0, FIRST_PAGE
    while found and found[0].role != "user" and looked < MAX_BACK:
        page = await _before(store, tenant, options, found, batch)
        if not page:
            break
        looked += len(page)
        batch = min(2 * batch, PAGE)
        start = next((i for i in reversed(range(len(page))) if page[i].role == "user"), 0)
        found = [*page[start:], *found]
    return [message for exchange in history.exchanges(found) for message in exchange]


async def _before(
    store: Store, tenant: str, options: MemoryOptions, found: list[ThreadMessage], limit: int
) -> list[ThreadMessage]:
    """The messages of a run's thread before those that were found."""
    first = found[0].position if found else 0
    if first == 1:
        return []
    where = MessageRange(before=first, newest=True, resource_id=options.resource_id)
    return await store.read_messages(tenant, options.thread_id, where, limit=limit)


def fitting(messages: Sequence[ThreadMessage], budget: int) -> list[ThreadMessage]:
    """The newest exchanges that take about `budget` tokens together at most."""
    found: list[ThreadMessage] = []
    for exchange in reversed(history.exchanges(messages)):
        budget -= sum(map(history.tokens, exchange))
        if budget < 0:
            break
        found = [*exchange, *found]
    return found


async def spec_with(
    store: Store, tenant: str, spec: RunSpec, options: MemoryOptions, remembered: Remembered
) -> RunSpec:
    """What a run was asked, with what it remembers."""
    told: list[Message] = []
    recalled = await older.read_places(store, tenant, options.resource_id, remembered.recalled)
    for thread_id, messages in recalled:
        same = thread_id == options.thread_id
        told += history.recalled(messages, same=same, filter_incomplete=options.filter_incomplete)
    if remembered.last:
        recent = await _read(store, tenant, options, remembered.first, remembered.last)
        told += history.for_model(recent, filter_incomplete=options.filter_incomplete)
    known = () if remembered.working is None else (remembered.working,)
    return msgspec.structs.replace(spec, history=tuple(told), known=known)


async def _read(
    store: Store, tenant: str, options: MemoryOptions, first: int, last: int
) -> list[ThreadMessage]:
    found: list[ThreadMessage] = []
    while first <= last:
        where = MessageRange(after=first - 1, before=last + 1, resource_id=options.resource_id)
        try:
            page = await store.read_messages(tenant, options.thread_id, where, limit=PAGE)
        except NotFound:  # it was deleted, and by now its name may be another's
            break
        found += page
        if len(page) < PAGE:
            break
        first = page[-1].position + 1
    return found


async def recollected(store: Store, snapshot: Snapshot) -> Snapshot:
    """A run with what it remembers in its `spec`. Raises `StoreUnavailable`."""
    options, remembered = snapshot.spec.options.memory, snapshot.remembered
    if options is None or remembered is None:
        return snapshot
    spec = await spec_with(store, snapshot.run.tenant, snapshot.spec, options, remembered)
    return msgspec.structs.replace(snapshot, spec=spec)


def memory_of(run: "RunExecution", snapshot: Snapshot) -> Memory | None:
    """The memory of a run; None where it has no thread."""
    options = snapshot.spec.options.memory
    return None if options is None else Memory(run, options, snapshot)


def defaults(agent: Agent) -> tuple[int, int]:
    """How many messages and tokens a run of an agent remembers where its caller does not say."""
    memory = agent.memory
    if memory is None:
        return DEFAULT_LAST_MESSAGES, DEFAULT_HISTORY_TOKENS
    return memory.last_messages, memory.max_history_tokens


def claim_of(options: MemoryOptions, settings: EngineSettings, now: int) -> ThreadClaim:
    """What a run that is created `now` wants of its thread."""
    wait = settings.queue_timeout if options.queue_timeout is None else options.queue_timeout
    return ThreadClaim(
        title=options.title,
        metadata=options.metadata,
        reads_only=options.read_only,
        queue=options.on_busy == "queue",
        queue_parked=options.on_parked == "queue",
        room=settings.thread_queue,
        deadline=now + int(wait * 1000),
        replace="A new message took its place." if options.on_parked == "cancel" else None,
    )
