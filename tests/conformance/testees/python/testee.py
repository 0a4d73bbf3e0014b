"""The Python SDK's testee. The protocol it speaks is in ../../README.md."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from entracte import AgentClient, Client, ClientTool, PendingCall, RawJson, StructuredOutput, __version__
from tests.conformance.testees.python.written import failure, jvalue, observed, written

LINE_BYTES = 64 * 1024 * 1024
SHOWN_TYPES = ("tool-call-approval", "tool-call-suspended")
OPTIONS = (
    "run_id", "request_id", "timeout", "max_steps", "active_tools", "require_tool_approval",
    "tool_call_concurrency", "structured_output", "instructions", "system", "memory", "model_settings",
    "tool_choice", "toolsets", "stop_when", "provider_options", "request_context", "scorers",
    "execution_timeout", "cancel_on_disconnect", "include_raw_chunks", "pending_call_expiry",
    "on_behalf_of", "comment",
)  # fmt: skip


def native(text: str) -> Any:
    """The value of a JSON text; what is none goes to the SDK as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return RawJson(text)


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the SDK takes them. Raises TypeError for one that the testee does not know."""
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise TypeError(f"the testee does not know the options {', '.join(unknown)}")
    found = {name: value for name, value in given.items() if value is not None}
    for name in ("provider_options", "request_context"):
        if name in found:
            found[name] = native(found[name])
    if "structured_output" in found:
        fields = found["structured_output"]
        values = {name: native(fields[name]) for name in ("schema", "fallback_value") if name in fields}
        found["structured_output"] = StructuredOutput(**{**fields, **values})
    if "default_answers" in found.get("pending_call_expiry", {}):
        expiry = found["pending_call_expiry"]
        answers = {tool: native(text) for tool, text in expiry["default_answers"].items()}
        found["pending_call_expiry"] = {**expiry, "default_answers": answers}
    return found


class Command:
    """One command that is carried out: what it writes, and how fast it reads a stream."""

    def __init__(self, testee: "Testee", asked: Mapping[str, Any]) -> None:
        self.testee = testee
        self.asked = asked
        self.allowed: int | None = asked.get("pull")
        self.may_read = asyncio.Event()

    def write(self, **line: Any) -> None:
        self.testee.write({"id": self.asked["id"], **line})

    def pull(self, count: int | None) -> None:
        """Allow so many elements more; None: all."""
        self.allowed = None if count is None or self.allowed is None else self.allowed + count
        self.may_read.set()

    async def turn(self) -> None:
        """Until another element may be asked for."""
        while self.allowed == 0:
            self.may_read.clear()
            await self.may_read.wait()
        if self.allowed is not None:
            self.allowed -= 1

    def extras(self) -> dict[str, Any]:
        """The observers and client tools that are asked for."""
        found: dict[str, Any] = {name: self._observer(name) for name in self.asked.get("observe") or ()}
        tools = [self._client_tool(tool) for tool in self.asked.get("client_tools") or ()]
        return {**found, "client_tools": tools} if tools else found

    def _observer(self, name: str) -> Callable[[Any], None]:
        def observer(value: Any) -> None:
            self.write(event={"name": name, "value": observed(name, value)})
            if self.asked.get("observer_raises"):
                raise RuntimeError("an observer that raises")

        return observer

    def _client_tool(self, tool: Mapping[str, Any]) -> ClientTool:
        does: Mapping[str, Any] = tool.get("function") or {}

        async def function(**args: Any) -> Any:
            text = json.dumps(args, ensure_ascii=False)
            self.write(
                event={"name": "client-tool", "value": {"tool": tool["name"], "args": jvalue(text, args)}}
            )
            if "raises" in does:
                raise RuntimeError(does["raises"])
            return args if does.get("echo") else native(does["returns"])

        schema = native(tool["input_schema"]) if "input_schema" in tool else None
        return ClientTool(tool["name"], tool.get("description", ""), schema, function if does else None)


class Testee:
    """Carries out commands, each in a task of its own."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.shown: dict[str, Any] = {}
        self.running: dict[str, tuple[Command, asyncio.Task[None]]] = {}

    def write(self, line: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    async def serve(self) -> None:
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            asked = json.loads(line)
            command = Command(self, asked)
            task = asyncio.create_task(self.carry_out(command))
            self.running[asked["id"]] = command, task
        for _, task in self.running.values():
            task.cancel()
        for client in self.clients.values():
            await client.aclose()

    async def carry_out(self, command: Command) -> None:
        asked = command.asked
        try:
            operation = OPERATIONS.get(asked["op"])
            if operation is None:
                raise TypeError(f"the testee does not know the op {asked['op']}")
            command.write(ok=await operation(self, command, asked) or {})
        except asyncio.CancelledError:
            command.write(cancelled=True)
        except Exception as error:
            command.write(error=failure(error))
        finally:
            self.running.pop(asked["id"], None)

    def client(self, asked: Mapping[str, Any]) -> Client:
        return self.clients[asked["client"]]

    def agent(self, asked: Mapping[str, Any]) -> AgentClient:
        return self.client(asked).agent(asked["agent"])

    def report(self, value: Any) -> Any:
        """What is written of a record; the pending calls in it can be decided from now on."""
        calls = [value] if isinstance(value, PendingCall) else getattr(value, "pending_calls", None) or ()
        if getattr(value, "type", None) in SHOWN_TYPES:
            calls = [value]
        self.shown.update((call.pending_call_id, call) for call in calls)
        return written(value)

    async def hello(self, command: Command, asked: Mapping[str, Any]) -> Any:
        return {"protocol": 1, "language": "python", "version": __version__, "ops": list(OPERATIONS)}

    async def connect(self, command: Command, asked: Mapping[str, Any]) -> None:
        names = ("api_key", "ca_certificates", "timeout", "reattach_timeout")
        options: Any = {name: asked[name] for name in names if asked.get(name) is not None}
        self.clients[asked["client"]] = Client(asked["address"], **options)

    async def close(self, command: Command, asked: Mapping[str, Any]) -> None:
        await self.clients.pop(asked["client"]).aclose()

    async def cancel(self, command: Command, asked: Mapping[str, Any]) -> None:
        if asked["target"] in self.running:
            self.running[asked["target"]][1].cancel()

    async def pull(self, command: Command, asked: Mapping[str, Any]) -> None:
        if asked["target"] in self.running:
            self.running[asked["target"]][0].pull(asked.get("count"))

    async def generate(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = {**options_of(asked.get("options") or {}), **command.extras()}
        return self.report(await self.agent(asked).generate(asked["input"], **options))

    async def stream(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = {**options_of(asked.get("options") or {}), **command.extras()}
        return await self.follow(command, self.agent(asked).stream(asked["input"], **options))

    async def follow(self, command: Command, stream: Any) -> Any:
        """Read a run's stream to its end, or as far as is asked."""
        async with stream:
            left = await self.elements(command, aiter(stream))
            result = None if left else self.report(await stream.result())
        found = {"run_id": stream.run_id, "position": stream.position, "text": stream.text, "left": left}
        found.update(usage=written(stream.fold.usage), result=result, decision=written(stream.decision))
        return found

    async def elements(self, command: Command, source: AsyncIterator[Any]) -> bool:
        """Write the elements of a stream; True when it was left before its end."""
        leave_after = command.asked.get("leave_after")
        count = 0
        while leave_after is None or count < leave_after:
            await command.turn()
            try:
                element = await anext(source)
            except StopAsyncIteration:
                return False
            count += 1
            command.write(item=self.report(element))
        return True

    async def decide(self, command: Command, asked: Mapping[str, Any]) -> Any:
        call = asked["call"]
        options = {**options_of(asked.get("options") or {}), **command.extras()}
        options.update((name, call[name]) for name in ("run_id", "tool_call_id") if name in call)
        arguments: list[Any] = [self.shown[call["shown"]] if "shown" in call else call.get("pending_call_id")]
        match asked["op"]:
            case "approve":
                if "edited_args" in asked:
                    options["edited_args"] = native(asked["edited_args"])
            case "decline":
                options["reason"] = asked.get("reason", "")
                if "reason_data" in asked:
                    options["reason_data"] = native(asked["reason_data"])
            case "resume":
                arguments.append(native(asked["answer"]))
            case _:
                if "error" in asked:
                    options["error"] = asked["error"]
                else:
                    arguments.append(native(asked["result"]))
        verb = "submit_tool_result" if asked["op"] == "submit" else asked["op"]
        agent = self.agent(asked)
        if asked.get("stream"):
            return await self.follow(command, getattr(agent, f"{verb}_stream")(*arguments, **options))
        return self.report(await getattr(agent, verb)(*arguments, **options))

    async def runs_watch(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = {**given(asked, "until_finished", "timeout"), **command.extras()}
        stream = self.client(asked).runs.watch(asked["run_id"], asked.get("after", 0), **options)
        return await self.follow(command, stream)

    async def runs_get(self, command: Command, asked: Mapping[str, Any]) -> Any:
        return self.report(await self.client(asked).runs.get(asked["run_id"], **given(asked, "omit_result")))

    async def runs_cancel(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = given(asked, "reason", "wait")
        return self.report(await self.client(asked).runs.cancel(asked["run_id"], **options))

    async def runs_delete(self, command: Command, asked: Mapping[str, Any]) -> None:
        await self.client(asked).runs.delete(asked["run_id"], **given(asked, "force"))

    async def inbox_get(self, command: Command, asked: Mapping[str, Any]) -> Any:
        return self.report(await self.client(asked).inbox.get(asked["pending_call_id"]))

    async def inbox_watch(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = given(asked, "run_id", "agent_id", "resource_id", "timeout")
        async with aclosing(self.client(asked).inbox.watch(**options)) as changes:
            return {"left": await self.elements(command, changes)}

    async def inbox_claim(self, command: Command, asked: Mapping[str, Any]) -> Any:
        return self.report(
            await self.client(asked).inbox.claim(asked["pending_call_id"], **given(asked, "ttl"))
        )

    async def inbox_release(self, command: Command, asked: Mapping[str, Any]) -> Any:
        return self.report(await self.client(asked).inbox.release(asked["pending_call_id"]))

    async def threads_create(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = with_metadata(given(asked, "thread_id", "title", "metadata", "request_id"))
        return written(await self.client(asked).threads.create(asked["resource_id"], **options))

    async def threads_get(self, command: Command, asked: Mapping[str, Any]) -> Any:
        return written(await self.client(asked).threads.get(asked["thread_id"]))

    async def threads_update(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = with_metadata(given(asked, "title", "metadata", "request_id"))
        return written(await self.client(asked).threads.update(asked["thread_id"], **options))

    async def threads_delete(self, command: Command, asked: Mapping[str, Any]) -> Any:
        cancelled = await self.client(asked).threads.delete(asked["thread_id"], **given(asked, "force"))
        return {"cancelled_run_ids": list(cancelled)}

    async def working_memory(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = given(asked, "thread_id", "resource_id")
        return written(await self.client(asked).threads.working_memory(**options))

    async def update_working_memory(self, command: Command, asked: Mapping[str, Any]) -> Any:
        options = given(asked, "thread_id", "resource_id", "expected_version")
        threads = self.client(asked).threads
        return written(await threads.update_working_memory(asked["content"], **options))


def given(asked: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of the keys that are there."""
    return {name: asked[name] for name in names if asked.get(name) is not None}


def with_metadata(options: dict[str, Any]) -> dict[str, Any]:
    if "metadata" in options:
        options["metadata"] = native(options["metadata"])
    return options


def listing(face: str, method: str, *names: str) -> Any:
    """An operation that lists: everything, or one page."""

    async def operation(testee: Testee, command: Command, asked: Mapping[str, Any]) -> Any:
        lists = getattr(testee.client(asked), face)
        first = [asked["thread_id"]] if method == "messages" else []
        filters = given(asked, "page_size", *names)
        token = asked.get("page_token")
        if token is None:
            async with aclosing(getattr(lists, method)(*first, **filters)) as found:
                return {"items": [testee.report(item) async for item in found]}
        page = await getattr(lists, f"{method}_page")(*first, token, **filters)
        return {
            "items": [testee.report(item) for item in page.items],
            "next_page_token": page.next_page_token,
        }

    return operation


OPERATIONS: dict[str, Any] = {
    "hello": Testee.hello,
    "connect": Testee.connect,
    "close": Testee.close,
    "cancel": Testee.cancel,
    "pull": Testee.pull,
    "generate": Testee.generate,
    "stream": Testee.stream,
    "approve": Testee.decide,
    "decline": Testee.decide,
    "resume": Testee.decide,
    "submit": Testee.decide,
    "runs.get": Testee.runs_get,
    "runs.list": listing("runs", "list", "states", "agent_id", "thread_id", "include_children"),
    "runs.watch": Testee.runs_watch,
    "runs.cancel": Testee.runs_cancel,
    "runs.delete": Testee.runs_delete,
    "inbox.list": listing(
        "inbox", "list", "run_id", "agent_id", "thread_id", "resource_id", "include_decided"
    ),
    "inbox.get": Testee.inbox_get,
    "inbox.watch": Testee.inbox_watch,
    "inbox.claim": Testee.inbox_claim,
    "inbox.release": Testee.inbox_release,
    "inbox.decisions": listing("inbox", "decisions", "run_id", "pending_call_id", "principal"),
    "threads.create": Testee.threads_create,
    "threads.get": Testee.threads_get,
    "threads.list": listing("threads", "list", "resource_id"),
    "threads.update": Testee.threads_update,
    "threads.delete": Testee.threads_delete,
    "threads.messages": listing("threads", "messages", "roles", "run_id", "newest_first"),
    "threads.working_memory": Testee.working_memory,
    "threads.update_working_memory": Testee.update_working_memory,
}

if __name__ == "__main__":
    asyncio.run(Testee().serve())
