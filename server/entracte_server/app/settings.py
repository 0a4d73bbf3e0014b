"""Settings of a server: from the command line, `ENTRACTE_*` variables, and a TOML file, in this order."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from entracte_server.app.lifeline import STOP_MARGIN
from entracte_server.app.supervisor import SupervisorSettings
from entracte_server.engine.settings import EngineSettings
from entracte_server.models.providers import ProviderSettings
from entracte_server.rpc.call import Principal
from entracte_server.rpc.server import ServerSettings
from entracte_server.store.opening import without_password

DEFAULT_FILE = "entracte.toml"

LONGEST = 36_600 * 86400
"""Seconds. What is to last for longer has no end: clocks and databases do not count so far."""

Seconds = Annotated[float, pydantic.Field(gt=0, le=LONGEST)]
Grace = Annotated[float, pydantic.Field(ge=0, le=LONGEST)]
ConnectionSeconds = Annotated[float, pydantic.Field(ge=0.001, le=24 * 86400)]
"""gRPC counts the milliseconds of a connection, with 31 bits."""

Count = Annotated[int, pydantic.Field(ge=1)]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _span(value: Any) -> Any:
    """A time in words: `forever`, or a number with a unit."""
    if isinstance(value, str):
        text = value.strip()
        if text == "forever":
            return None
        if text[-1:] in _UNITS:
            try:
                return float(text[:-1]) * _UNITS[text[-1]]
            except ValueError:
                return value
    return value


Span = Annotated[Annotated[float, pydantic.Field(gt=0, le=LONGEST)] | None, pydantic.BeforeValidator(_span)]
"""How long something is kept: seconds, or `90m`, `12h`, `30d`; None or `forever`."""


class ApiKey(pydantic.BaseModel):
    """One credential and who it stands for."""

    model_config = pydantic.ConfigDict(extra="forbid")

    key: Annotated[pydantic.SecretStr, pydantic.Field(min_length=8)]
    principal: Annotated[str, pydantic.Field(min_length=1)]
    tenant: Annotated[str, pydantic.Field(min_length=1)] = "default"
    roles: list[Literal["run", "decide", "worker", "author"]] = ["run", "decide", "worker"]


class Settings(BaseSettings):
    """All settings; each field's description is its documentation."""

    model_config = SettingsConfigDict(
        env_prefix="ENTRACTE_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    address: Annotated[
        str, pydantic.Field(description="Where to listen, host:port. Port 0 takes any free one.")
    ] = "127.0.0.1:50051"
    store: Annotated[
        str,
        pydantic.Field(
            repr=False,
            description="The database: `sqlite:///PATH` (three slashes, then the path), or "
            "`postgresql://USER:PASSWORD@HOST/DATABASE`.",
        ),
    ] = "sqlite:///entracte.db"
    store_listen_url: Annotated[
        str,
        pydantic.Field(
            repr=False,
            description="A direct URL of the same PostgreSQL database, when `store` leads through a pooler "
            "in transaction mode.",
        ),
    ] = ""
    workers: Annotated[
        Count, pydantic.Field(description="Processes that serve, all on one port and one store.")
    ] = 1
    worker_start_timeout: Annotated[
        Seconds, pydantic.Field(description="Seconds a worker may take until it serves.")
    ] = 60.0
    worker_hang_timeout: Annotated[
        Grace,
        pydantic.Field(
            description="Seconds after which a worker that gives no sign of life is replaced; 0: never.",
        ),
    ] = 60.0
    worker_failures: Annotated[
        int,
        pydantic.Field(
            ge=0,
            description="How often in a row a worker and its successors may die within 30 seconds of "
            "serving before the server gives up; 0: it never does.",
        ),
    ] = 5
    api_keys: Annotated[
        list[ApiKey],
        pydantic.Field(
            description="Credentials, a list of `{key, principal, tenant, roles}`. Roles: `run`, "
            "`decide`, `worker` (these three unless given) and `author`. Without any, the server listens on "
            "loopback only and everybody is `local`."
        ),
    ] = []
    tls_certificate: Annotated[
        Path | None, pydantic.Field(description="File with the certificate chain, PEM.")
    ] = None
    tls_key: Annotated[Path | None, pydantic.Field(description="File with the private key, PEM.")] = None
    providers: Annotated[
        dict[str, dict[str, Any]],
        pydantic.Field(
            description="Model providers by name, each `{base_url, api_key, ...}`; known ones need "
            "their key only, from `NAME_API_KEY`."
        ),
    ] = {}
    model_idle_timeout: Annotated[
        Seconds, pydantic.Field(description="Seconds a provider may be silent within an answer.")
    ] = 60.0
    tool_timeout: Annotated[
        Seconds, pydantic.Field(description="Seconds one execution of a tool may take.")
    ] = 300.0
    tool_errors: Annotated[
        Literal["message", "generic"],
        pydantic.Field(description="Whether the model and the stream see what a tool raised."),
    ] = "message"
    scorer_timeout: Annotated[
        Seconds, pydantic.Field(description="Seconds a scorer may take, unless it says otherwise.")
    ] = 60.0
    tool_worker_grace: Annotated[
        Seconds,
        pydantic.Field(
            ge=1,
            description="Seconds a tool worker may be without a stream before its calls are given to others.",
        ),
    ] = 30.0
    tool_worker_wait: Annotated[
        Seconds,
        pydantic.Field(
            description="Seconds a call waits for a worker that executes its tool, when there is none."
        ),
    ] = 60.0
    tool_worker_queue: Annotated[
        Seconds,
        pydantic.Field(description="Seconds a call waits when all workers of its tool are busy."),
    ] = 3600.0
    sync_tool_threads: Annotated[
        Count, pydantic.Field(description="Synchronous tools that may run at once.")
    ] = 64
    execution_timeout: Annotated[
        Seconds | None, pydantic.Field(description="Seconds a run may execute, waiting excluded.")
    ] = None
    lease: Annotated[
        Seconds,
        pydantic.Field(
            ge=1,
            description="Seconds a process may be silent before others take over its runs; it is renewed "
            "three times in that.",
        ),
    ] = 15.0
    disconnect_grace: Annotated[
        Grace,
        pydantic.Field(description="Seconds a run with cancel_on_disconnect lives without readers."),
    ] = 10.0
    keep_alive: Annotated[Seconds, pydantic.Field(description="Longest silence on a stream, seconds.")] = 15.0
    reader_timeout: Annotated[
        Seconds, pydantic.Field(description="Seconds a reader may take for one message before it is cut off.")
    ] = 30.0
    streams_per_principal: Annotated[
        Count, pydantic.Field(description="RPCs one principal may have open.")
    ] = 10_000
    max_runs: Annotated[
        Count, pydantic.Field(description="Runs that may execute in one process before it starts no more.")
    ] = 10_000
    runs_per_principal: Annotated[
        Count, pydantic.Field(description="The same for the runs of one principal.")
    ] = 10_000
    thread_queue: Annotated[Count, pydantic.Field(description="Runs that may wait for one thread.")] = 100
    queue_timeout: Annotated[
        Seconds,
        pydantic.Field(
            description="Seconds a run may wait for its thread, unless its caller says otherwise."
        ),
    ] = 600.0
    recall_messages: Annotated[
        Count, pydantic.Field(description="Messages that semantic recall searches at most, the newest.")
    ] = 100_000
    recall_timeout: Annotated[
        Seconds,
        pydantic.Field(description="Seconds semantic recall may take; then the run goes on without it."),
    ] = 10.0
    retain_chunks: Annotated[
        Span,
        pydantic.Field(
            description="How long the chunks of a run that has ended are kept: seconds, or `12h`, `30d`, "
            "`forever`. Without them it cannot be watched any more; its result stays."
        ),
    ] = None
    retain_runs: Annotated[
        Span,
        pydantic.Field(
            description="How long a run that has ended is kept, with its result and decisions; as above."
        ),
    ] = None
    retain_requests: Annotated[
        Span,
        pydantic.Field(
            description="How long a repeated request is recognised. That of a decision is, as long as the "
            "decision is kept."
        ),
    ] = 7 * 86400.0
    quick_deadline: Annotated[
        Seconds, pydantic.Field(description="Seconds for unary RPCs that do not wait for a run.")
    ] = 60.0
    waiting_deadline: Annotated[
        Seconds, pydantic.Field(description="Seconds a unary RPC may wait for a run.")
    ] = 3600.0
    connection_age: Annotated[
        ConnectionSeconds | None,
        pydantic.Field(
            description="Seconds after which a client is told to connect anew, so that new replicas get "
            "their share; give or take a tenth. Not set: never."
        ),
    ] = None
    connection_age_grace: Annotated[
        ConnectionSeconds,
        pydantic.Field(
            description="Seconds that calls on a connection of that age get to end; streams re-attach."
        ),
    ] = 60.0
    grace: Annotated[
        Grace, pydantic.Field(description="Seconds running work gets when the server stops.")
    ] = 10.0
    reflection: Annotated[bool, pydantic.Field(description="Whether to serve gRPC reflection.")] = True
    telemetry: Annotated[
        bool,
        pydantic.Field(
            description="Whether to send traces and metrics over OTLP. Where to and how is said by the "
            "`OTEL_*` variables; needs the extra `entracte-server[otel]`."
        ),
    ] = False
    telemetry_content: Annotated[
        bool,
        pydantic.Field(
            description="Whether spans carry what is said to models and tools and what they answer, where "
            "neither the request nor the agent says so."
        ),
    ] = False
    metrics_address: Annotated[
        str,
        pydantic.Field(
            description="Where to serve metrics for Prometheus, host:port; workers take this port and those "
            "after it. Empty: nowhere. Needs the same extra."
        ),
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], pydantic.Field(description="The least level logged.")
    ] = "info"
    log_format: Annotated[
        Literal["json", "console"], pydantic.Field(description="JSON lines, or lines for people.")
    ] = "json"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of the sources; the file is `entracte.toml`, or what `ENTRACTE_CONFIG` names."""
        named = os.environ.get("ENTRACTE_CONFIG")
        if named and not Path(named).is_file():
            raise ValueError(f"ENTRACTE_CONFIG: there is no file {named}")
        file = Path(named or DEFAULT_FILE)
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        host = self.address.rpartition(":")[0].strip("[]")
        if not self.api_keys and host not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"address {self.address}: without api_keys the server listens on loopback only")
        owners: dict[str, ApiKey] = {}
        for item in self.api_keys:
            other = owners.setdefault(item.key.get_secret_value(), item)
            if other is not item:
                raise ValueError(f"api_keys: {other.principal} and {item.principal} have the same key")
        return self

    def engine(self) -> EngineSettings:
        """The part for the engine."""
        return EngineSettings(
            lease=self.lease,
            tool_timeout=self.tool_timeout,
            tool_worker_grace=self.tool_worker_grace,
            tool_worker_wait=self.tool_worker_wait,
            tool_worker_queue=self.tool_worker_queue,
            execution_timeout=self.execution_timeout,
            sync_tool_threads=self.sync_tool_threads,
            disconnect_grace=self.disconnect_grace,
            keep_alive=self.keep_alive,
            reader_timeout=self.reader_timeout,
            tool_errors=self.tool_errors,
            scorer_timeout=self.scorer_timeout,
            max_runs=self.max_runs,
            runs_per_principal=self.runs_per_principal,
            thread_queue=self.thread_queue,
            queue_timeout=self.queue_timeout,
            recall_messages=self.recall_messages,
            recall_timeout=self.recall_timeout,
            retain_chunks=self.retain_chunks,
            retain_runs=self.retain_runs,
            retain_requests=self.retain_requests,
        )

    def server(self) -> ServerSettings:
        """The part for the RPC layer. Raises `OSError` when a TLS file cannot be read."""
        return ServerSettings(
            tls_certificate=self.tls_certificate.read_bytes() if self.tls_certificate else b"",
            tls_key=self.tls_key.read_bytes() if self.tls_key else b"",
            api_keys={
                item.key.get_secret_value(): Principal(item.tenant, item.principal, frozenset(item.roles))
                for item in self.api_keys
            },
            streams_per_principal=self.streams_per_principal,
            quick_deadline=self.quick_deadline,
            waiting_deadline=self.waiting_deadline,
            connection_age=self.connection_age,
            connection_age_grace=self.connection_age_grace,
            reflection=self.reflection,
        )

    def supervisor(self) -> SupervisorSettings:
        """The part for the supervisor of several workers."""
        return SupervisorSettings(
            count=self.workers,
            start_timeout=self.worker_start_timeout,
            hang_timeout=self.worker_hang_timeout,
            failures=self.worker_failures,
            stop_timeout=self.grace + STOP_MARGIN,
        )

    def provider_settings(self) -> list[ProviderSettings]:
        """The part for the models. Raises `ValueError` naming the provider and the key."""
        result = []
        for name, values in self.providers.items():
            unknown = set(values) - set(ProviderSettings.__struct_fields__)
            if unknown:
                raise ValueError(f"providers.{name}: unknown {', '.join(sorted(unknown))}")
            try:
                result.append(msgspec.convert({"name": name, **values}, ProviderSettings, strict=False))
            except msgspec.ValidationError as error:
                raise ValueError(f"providers.{name}: {error}") from None
        return result

    @property
    def shown_store(self) -> str:
        """The store's URL as people may see it."""
        return without_password(self.store)
