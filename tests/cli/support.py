"""Running the command line: in this process, or at a terminal of its own."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from typing import Any, Self

from click.testing import CliRunner, Result

from entracte_server.app.cli import main


async def entracte(*words: str, address: str = "", stdin: str | None = None, **env: str) -> Result:
    """Run a command beside a server that has this loop; without a terminal."""
    environment = {"ENTRACTE_ADDRESS": address, **env} if address else dict(env)
    runner = CliRunner()
    invoked = asyncio.to_thread(runner.invoke, main, [*words], input=stdin, env=environment)
    result = await asyncio.wait_for(invoked, 20)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


# The first terminal that a new session opens becomes its own, so that ^C reaches it.
_COMMAND = """
import os
os.close(os.open(os.ttyname(0), os.O_RDWR))
from entracte_server.app.cli import main
main()
"""


class Terminal:
    """A command at a pseudo-terminal. Use as an async context manager."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._seen = ""
        self._arrived = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        os.set_blocking(self._master, False)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _COMMAND,
            *self._words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb", "NO_COLOR": "1"},
        )
        os.close(slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(self, *_: Any) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        os.close(self._master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            asyncio.get_running_loop().remove_reader(self._master)
            data = b""
        self._seen += re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", data.decode(errors="replace")).replace("\r", "")
        self._arrived.set()

    async def expect(self, words: str) -> str:
        """Wait until the words appear; what came before and with them, which is then forgotten."""
        try:
            async with asyncio.timeout(20):
                while words not in self._seen:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"{words!r} did not appear in:\n{self._seen}") from None
        before, _, self._seen = self._seen.partition(words)
        return before + words

    def send(self, text: str) -> None:
        """Type a line."""
        os.write(self._master, f"{text}\n".encode())

    def press(self, key: str) -> None:
        """Press a key: `^C` or `^D`."""
        os.write(self._master, bytes([ord(key[1]) - 64]))

    async def ended(self) -> int:
        """Wait for the end; the exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), 20)
