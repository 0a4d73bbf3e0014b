"""A server process from start to stop: store, models, engine, RPCs."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.processors.base import Processor
from entracte_server.agents.scorers import LlmScorer
from entracte_server.app.settings import Settings
from entracte_server.domain.data import Data
from entracte_server.engine.engine import Engine
from entracte_server.engine.settings import EngineSettings
from entracte_server.models.base import Model
from entracte_server.models.embedding import Embedder
from entracte_server.models.providers import Providers
from entracte_server.rpc.server import Server, ServerSettings
from entracte_server.store.base import Store, StoreError
from entracte_server.store.opening import open_store
from entracte_server.store.signals import FREE_RUNS
from entracte_server.telemetry.base import NOTHING, Telemetry

_log = structlog.get_logger(__name__)


MAX_KNOWN = 4096
"""Agents, scorers and processors whose models are kept: those made of data come without end."""


class Running(Data, frozen=True):
    """What runs."""

    server: Server
    engine: Engine
    store: Store


class Resolver:
    """Finds the models of an agent, a scorer or a processor, or the one that is named, once. `stand_in`
    replaces every model that is only named. Calls of the models are told to `telemetry`."""

    def __init__(
        self,
        providers: Providers,
        stand_in: Callable[[str], Model] | None = None,
        telemetry: Telemetry = NOTHING,
    ) -> None:
        self._providers = providers
        self._stand_in = stand_in
        self._telemetry = telemetry
        self._known: dict[tuple[Any, ...], Sequence[Model]] = {}
        self._own: dict[str, Model] = {}

    def __call__(self, asker: Agent | LlmScorer | Processor | str) -> Sequence[Model]:
        """Raises `MissingApiKey`, `UnknownProvider`."""
        if isinstance(asker, str):  # by anybody, so not remembered here
            return (self._model(self._own.get(asker, asker)),)
        # An agent may have a processor of its own by the name of another.
        key = (type(asker), asker.id, asker.models)
        models = self._known.get(key)
        if models is None:
            # What processors ask about is what has not passed them yet.
            content = not isinstance(asker, Processor)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            named = (self._own.get(item, item) if isinstance(item, str) else item for item in asker.models)
            models = self._known[key] = tuple(self._model(item, content) for item in named)
        return models

    def check(self, app: App) -> None:
        """Looks whether all models of an app can be asked. Model objects that it has for structured output
        and for titles, and those it has by themselves, can be named from then on."""
        for model in app.models.values():
            self._know("named", model)
        for agent in app.every_agent.values():
            self(agent)
            recall = None if agent.memory is None else agent.memory.semantic_recall
            if recall is not None and self._stand_in is None:
                self.embedder(recall.embedder)
            if agent.structured_output is not None:
                self._know("structuring", agent.structured_output.model)
            if agent.memory is not None:
                self._know("title", agent.memory.title_model)
        for scorer in app.scorers.values():
            if isinstance(scorer, LlmScorer):
                self(scorer)
        for processor in app.every_processor():
            if processor.models:
                self(processor)

    def embedder(self, item: str | Embedder) -> Embedder:
        """An embedder, or that of a name. Raises `MissingApiKey`, `UnknownProvider`, and `ValueError` where
        models that are only named are not asked."""
        if not isinstance(item, str):
            return item
        if self._stand_in is not None:
            raise ValueError(f"the embedder {item!r} is not asked while models are scripted")
        return self._providers.embedder(item)

    def _know(self, what: str, model: str | Model) -> None:
        """A model that is asked by its name; none where that is empty."""
        if not model:
            return
        self._model(model)
        if not isinstance(model, str) and self._own.setdefault(model.name, model) is not model:
            raise ValueError(f"two {what} models are called {model.name!r}")

    def _model(self, item: str | Model, content: bool = True) -> Model:
        if not isinstance(item, str):
            model = item
        else:
            model = self._stand_in(item) if self._stand_in is not None else self._providers.resolve(item)
        return self._telemetry.model(model, content=content)


def open_telemetry(settings: Settings, worker: int | None) -> Telemetry:
    """What the settings ask for; OpenTelemetry is loaded only where they do. Raises `ValueError`, and
    `OSError` when the port of the metrics is taken."""
    if not (settings.telemetry or settings.metrics_address):
        return NOTHING
    try:
        from entracte_server.telemetry import exporting
    except ImportError as error:
        raise ValueError(
            f"telemetry and metrics_address need more packages: install entracte-server[otel] ({error})"
        ) from None
    return exporting.open_telemetry(
        exporting.Exports(settings.telemetry, settings.telemetry_content, settings.metrics_address, worker)
    )


async def bury(store: Store, process_id: str) -> None:
    """Have others go on with the runs of a process that is known to be dead; without this they wait until
    its lease has ended, which is what happens when the store cannot be asked."""
    try:
        await store.leave(process_id)
    except StoreError as error:
        _log.warning("dead_process_not_left", process_id=process_id, error=str(error))
    else:
        store.signals.tell(FREE_RUNS)


@asynccontextmanager
async def running(
    app: App,
    settings: Settings,
    *,
    stand_in: Callable[[str], Model] | None = None,
    engine_settings: EngineSettings | None = None,
    server_settings: ServerSettings | None = None,
    worker: int | None = None,
) -> AsyncIterator[Running]:
    """Serve `app` for as long as the context lasts, then stop gracefully. `worker` is the number of this
    process among those of a supervisor.

    Raises `ValueError` for settings that cannot be used, `MissingApiKey` and `UnknownProvider` for
    models that cannot be asked, `RuntimeError` when the port is taken.
    """
    providers = Providers(settings.provider_settings(), idle_timeout=settings.model_idle_timeout)
    telemetry = NOTHING
    try:
        telemetry = open_telemetry(settings, worker)
        resolve = Resolver(providers, stand_in, telemetry)
        resolve.check(app)
        await providers.load()
        for processor in app.every_processor():
            processor.load()
        store = await open_store(settings.store, listen_url=settings.store_listen_url)
        try:
            engine = Engine(
                app=app,
                store=store,
                resolve=resolve,
                settings=engine_settings or settings.engine(),
                telemetry=telemetry,
                embedder=resolve.embedder,
            )
            server = Server(engine, server_settings or settings.server())
            try:
                await engine.open()
                await server.start(settings.address)
                yield Running(server, engine, store)
            finally:
                await server.drain()
                await engine.close(settings.grace)
                await server.stop(1.0 if settings.grace else 0.0)
        finally:
            await store.close()
    finally:
        await telemetry.close()
        await providers.aclose()
