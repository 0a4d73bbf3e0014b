"""MCP servers as toolsets: what an author says about one."""

import fnmatch
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from entracte_server.agents.approval import ApprovalPolicy, demand_of
from entracte_server.agents.tools import Predicate, Tool
from entracte_server.agents.toolsets import check_name
from entracte_server.domain.options import ApprovalRules

CONNECT_TIMEOUT = 30.0
"""Seconds that a server has to be there and to list its tools."""


class McpToolset:
    """The tools of a server that speaks the Model Context Protocol; needs the extra
    `entracte-server[mcp]`.

    Each process has one session with the server, begun when it is first needed, and begun again when it
    was lost. Give `command` for a program that is started and talked to over its standard input and
    output, or `url` for a server that is there (streamable HTTP).

    A run's tools are those that the server lists when the run starts; they are stored with the run. What
    the server says of its tools beyond name, description and schema is not relied upon.

    Args:
        name: What agents and callers choose it by, as for `Toolset`.
        command: The program and its arguments.
        env: Environment variables of the program. Of this process's own it has `HOME`, `LOGNAME`,
            `PATH`, `SHELL`, `TERM` and `USER` only.
        cwd: Where the program is started.
        url: The server's address.
        headers: Sent with every request to it, for example `Authorization`.
        only: Patterns of the names of the tools to take, as the server calls them. Default: all.
        require_approval: Whether a person must approve each call, or patterns of the names of tools for
            which this holds, or an `ApprovalPolicy` (without `toolsets` and `predicates`). Names are the
            server's own.
        idempotent: Whether calling a tool twice with the same arguments does no harm, or patterns of the
            names of the tools for which this holds. A call that is lost with the connection, or with this
            process, is then made again; of any other a person is asked what became of it.
        timeout: The longest one call may take, in seconds. Default: the setting for all tools.
        connect_timeout: The longest it may take until the server is there and has listed its tools, in
            seconds.

    Raises `ValueError` when it is not exactly one of `command` and `url`, and what goes with one is given
    with the other, `RuntimeError` when the package `mcp` is not there.
    """

    tools: Mapping[str, Tool] = MappingProxyType({})
    """The tools that are known before the server was asked: none."""

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        only: Sequence[str] | None = None,
        require_approval: bool | Sequence[str] | ApprovalPolicy = False,
        idempotent: bool | Sequence[str] = False,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self.name = check_name(name)
        if (command is None) == (url is None):
            raise ValueError(f"toolset {name}: give a command or a url")
        if command is not None and (isinstance(command, str) or not command):
            raise ValueError(f'toolset {name}: command is a list, such as ["uvx", "mcp-server-git"]')
        if command is not None and headers is not None:
            raise ValueError(f"toolset {name}: headers go with a url")
        if url is not None and (env is not None or cwd is not None):
            raise ValueError(f"toolset {name}: env and cwd go with a command")
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError(f"toolset {name}: the url must begin with http:// or https://")
        for what, given in (
            ("only", only),
            ("idempotent", idempotent),
            ("require_approval", require_approval),
        ):
            if isinstance(given, str):
                raise ValueError(f"toolset {name}: {what} is a list of patterns, not the text {given!r}")
        if not connect_timeout > 0:
            raise ValueError(f"toolset {name}: connect_timeout must be more than 0")
        self.command = None if command is None else tuple(command)
        self.env = dict(env or {})
        self.cwd = cwd
        self.url = url
        self.headers = dict(headers or {})
        self.timeout = timeout
        self.connect_timeout = connect_timeout
        self._only = ("*",) if only is None else tuple(only)
        self._idempotent = ("*",) if idempotent is True else tuple(idempotent or ())
        self._approval = self._rules(require_approval)
        try:
            importlib.import_module("mcp.client")  # takes its time, so not when a run waits for it
        except ImportError:
            raise RuntimeError(
                f"toolset {name}: MCP needs another package: pip install 'entracte-server[mcp]'"
            ) from None

    def _rules(self, given: bool | Sequence[str] | ApprovalPolicy) -> ApprovalRules:
        if isinstance(given, bool):
            return ApprovalRules(all=given)
        if not isinstance(given, ApprovalPolicy):
            return ApprovalRules(patterns=tuple(given))
        if given.rules.toolsets or given.rules.predicates:
            raise ValueError(
                f"toolset {self.name}: require_approval takes no toolsets and no predicates; those are for "
                "the policies of agents"
            )
        return given.rules

    def takes(self, remote: str) -> bool:
        """Whether the tool that the server calls `remote` is one of the toolset's."""
        return any(fnmatch.fnmatchcase(remote, pattern) for pattern in self._only)

    def demand(self, remote: str) -> bool | Predicate:
        """Which calls of a tool have to be approved."""
        return demand_of(self._approval, remote)

    def is_idempotent(self, remote: str) -> bool:
        """Whether a call of the tool may be made again."""
        return any(fnmatch.fnmatchcase(remote, pattern) for pattern in self._idempotent)

    def __repr__(self) -> str:
        return f"<McpToolset {self.name}>"
