"""`entracte serve` and `entracte migrate`."""

import asyncio
import gc
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from entracte_server.agents.agent import App
    from entracte_server.app.lifeline import Agents, Lifeline
    from entracte_server.app.settings import Settings
    from entracte_server.models.base import Model


def load_app(target: str) -> "App":
    """The `App` that `module:attribute` names. Raises `click.UsageError`."""
    from entracte_server.agents.agent import App

    module_name, _, attribute = target.partition(":")
    attribute = attribute or "app"
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise click.UsageError(f"there is no module {module_name!r} here (in {folder})") from None
        raise
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        raise click.UsageError(f"{module_name} has no App called {attribute!r}")
    return found


def read_settings(**given: Any) -> "Settings":
    """Settings from all sources; what is None is not given. Raises `click.UsageError`."""
    import pydantic

    from entracte_server.app.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except pydantic.ValidationError as error:
        lines = [
            f"{'.'.join(str(part) for part in item['loc']) or 'settings'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise click.UsageError("\n".join(lines)) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _stand_in(script: str | None) -> "Any":
    """What replaces named models with `--scripted`: a script from a file, or an echo."""
    from entracte_server.models.scripted import ScriptedModel

    if script is None:
        return None
    if script:
        model: Model = ScriptedModel.from_file(script, position="transcript")
    else:
        model = ScriptedModel([_echo], name="scripted/echo")
    return lambda name: model


def _echo(request: Any) -> list[dict[str, Any]]:
    """Says back what was said last."""
    for message in reversed(request.messages):
        if message.role == "user":
            text = " ".join(part.text for part in message.parts if hasattr(part, "text"))
            return [{"text": f"You said: {text}"}]
    return [{"text": "You said nothing."}]


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--address", help="Where to listen, host:port. Default 127.0.0.1:50051.")
@click.option(
    "--store", help="The database: sqlite:///PATH or postgresql://... Default sqlite:///entracte.db."
)
@click.option(
    "--scripted",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Answer from a script instead of asking models; without FILE, echo.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes that serve. Default 1.")
@click.option("--reload", is_flag=True, help="Restart when a Python file of this folder changes.")
@click.option("--log-format", type=click.Choice(["json", "console"]), help="How logs look.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What is logged.")
@click.option("--worker", type=(int, int), hidden=True)  # what a supervisor starts: number, descriptor
def serve(
    target: str,
    address: str | None,
    store: str | None,
    scripted: str | None,
    workers: int | None,
    reload: bool,
    log_format: str | None,
    log_level: str | None,
    worker: tuple[int, int] | None,
) -> None:
    """Serve the agents of an App, for example `entracte serve agents:app`."""
    # gRPC's own notices on stderr; it reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    lifeline = _lifeline(worker[1]) if worker is not None else None
    if reload:
        from entracte_server.app.reloading import run_reloading

        raise SystemExit(run_reloading([a for a in sys.argv[1:] if a != "--reload"]))
    settings = read_settings(
        address=address, store=store, workers=workers, log_format=log_format, log_level=log_level
    )
    from entracte_server.app.logs import configure

    log = configure(settings.log_level, settings.log_format, worker=worker[0] if worker is not None else None)
    if settings.workers > 1 and worker is None:
        from entracte_server.app.cli.supervising import supervise

        given = {"--store": store, "--log-format": log_format, "--log-level": log_level}
        code = supervise(target, settings, given, scripted)
    else:
        number = worker[0] if worker is not None else None
        code = _run(load_app(target), settings, _stand_in(scripted), lifeline, number)
    log.flush(1.0)
    raise SystemExit(code)


def _lifeline(descriptor: int) -> "Lifeline":
    import faulthandler

    from entracte_server.app.lifeline import Lifeline

    faulthandler.enable()  # a worker that hangs is aborted, and says where it was
    return Lifeline(descriptor)


def _run(
    app: "App", settings: "Settings", stand_in: Any, lifeline: "Lifeline | None", worker: int | None
) -> int:
    from entracte_server.app.reserving import why_not
    from entracte_server.models.providers import MissingApiKey, UnknownProvider
    from entracte_server.store.base import StoreError

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(app, settings, stand_in, lifeline, worker))
    except MissingApiKey as error:
        click.echo(f"error: {error}, or start with --scripted to answer from a script.", err=True)
        return 1
    except (UnknownProvider, StoreError, ValueError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except RuntimeError as error:  # what gRPC raises when it cannot listen says nothing of why
        reason = why_not(settings.address) if lifeline is None else ""
        click.echo(f"error: {reason or error}", err=True)
        return 1
    return 0


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _settle_memory() -> None:
    """What was imported stays: the collector need not look through it again and again, which stops the
    server for as long as dozens of commits take. Nor need it look so often: what a run leaves behind is
    mostly not cyclic, and a few thousand objects more do not matter."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _serve(
    app: "App", settings: "Settings", stand_in: Any, lifeline: "Lifeline | None", worker: int | None
) -> None:
    from msgspec.structs import replace

    from entracte_server.app.lifeline import STOP_MARGIN
    from entracte_server.app.running import Resolver, bury, running
    from entracte_server.models.providers import Providers

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        lifeline.attach(stop.set, settings.grace + STOP_MARGIN)
    server_settings = replace(settings.server(), reuse_port=lifeline is not None)
    async with running(
        app, settings, stand_in=stand_in, server_settings=server_settings, worker=worker
    ) as it:
        it.engine.telemetry.make_global()
        _settle_memory()
        resolve = Resolver(Providers(settings.provider_settings()), stand_in)
        agents = [
            (agent.id, ", ".join(model.name for model in resolve(agent))) for agent in app.agents.values()
        ]
        if lifeline is not None:
            burials: set[asyncio.Task[None]] = set()

            def died(process_id: str) -> None:
                if not stop.is_set():
                    task = asyncio.create_task(bury(it.store, process_id))
                    burials.add(task)
                    task.add_done_callback(burials.discard)

            lifeline.ready(agents, lambda: it.engine.lease.process_id, died)
            await stop.wait()
            for task in burials:
                task.cancel()
        else:
            host = settings.address.rpartition(":")[0]
            say_started(f"{host}:{it.server.port}", settings.shown_store, agents)
            await stop.wait()
            say_stopping()


def say_started(address: str, store: str, agents: "Agents", workers: int = 1) -> None:
    """Tell people that the server serves, and what to try."""
    by = f", {workers} workers" if workers > 1 else ""
    click.echo(f"Entracte serves on {address}, store {store}{by}")
    for agent, model in agents:
        click.echo(f"  agent {agent}, model {model}")
    first = agents[0][0] if agents else "AGENT"
    option = "" if address == "127.0.0.1:50051" else f" --address {address}"
    click.echo(f"Try: entracte chat {first}{option}")
    sys.stdout.flush()


def say_stopping() -> None:
    """Tell people that the server stops."""
    click.echo("Stopping: running work gets a moment; parked runs stay as they are.")
    sys.stdout.flush()


@click.command()
@click.option(
    "--store", help="The database: sqlite:///PATH or postgresql://... Default sqlite:///entracte.db."
)
def migrate(store: str | None) -> None:
    """Bring the database up to this version's schema. `serve` does so by itself."""
    settings = read_settings(store=store)

    async def work() -> None:
        from entracte_server.store.opening import open_store

        opened = await open_store(settings.store, listen_url=settings.store_listen_url)
        await opened.close()

    from entracte_server.store.base import StoreError

    try:
        asyncio.run(work())
    except (StoreError, OSError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(1) from None
    click.echo(f"{settings.shown_store} is up to date.")
