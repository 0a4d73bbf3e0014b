"""The sockets beside the database: addresses, deaths, full ones, and none at all."""

import asyncio
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from entracte_server.store.sqlite import SQLiteStore, sockets
from entracte_server.store.sqlite.sockets import Sockets, file_name


class Post:
    """Sockets of one folder, each with what it received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Sockets] = []
        self.raw: list[socket.socket] = []

    def join(self, process_id: str) -> tuple[Sockets, "asyncio.Queue[str]"]:
        received: asyncio.Queue[str] = asyncio.Queue()
        joined = Sockets(self.folder, received.put_nowait)
        joined.open(process_id)
        self.opened.append(joined)
        return joined, received

    def bind(self, process_id: str) -> socket.socket:
        """A socket whose process reads nothing."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.raw.append(bound)
        bound.setblocking(False)
        here = os.getcwd()
        os.chdir(self.folder)
        bound.bind(file_name(process_id))
        os.chdir(here)
        return bound

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
async def new_post() -> AsyncIterator[Callable[[Path], Post]]:
    posts: list[Post] = []

    def make(folder: Path) -> Post:
        posts.append(Post(folder))
        return posts[-1]

    yield make
    for post in posts:
        for opened in post.opened:
            opened.close()
        for raw in post.raw:
            raw.close()


@pytest.fixture
def post(new_post: Callable[[Path], Post], tmp_path: Path) -> Post:
    return new_post(tmp_path / "processes")


async def got(received: "asyncio.Queue[str]") -> str:
    return await asyncio.wait_for(received.get(), 10)


async def test_texts_arrive(post: Post) -> None:
    one, of_one = post.join("one")
    two, of_two = post.join("two")
    three, of_three = post.join("three")
    assert two.send("one", "hello 🙈")
    assert await got(of_one) == "hello 🙈"
    assert one.broadcast("all")
    assert (await got(of_two), await got(of_three)) == ("all", "all")
    assert three.send("nobody", "hello")
    assert of_one.empty()
    assert stat.S_IMODE(post.folder.stat().st_mode) == 0o700
    assert post.names() == ["one.sock", "three.sock", "two.sock"]
    one.close()
    one.close()
    assert post.names() == ["three.sock", "two.sock"]
    assert one.broadcast("nothing")
    assert not one.refuses("two")


async def test_paths_of_any_length(new_post: Callable[[Path], Post], tmp_path: Path) -> None:
    post = new_post(tmp_path / ("long" * 60) / ("longer" * 40))
    post.folder.parent.mkdir()
    one, _ = post.join("one")
    _, received = post.join("two")
    one.send("two", "hello")
    assert await got(received) == "hello"
    assert not one.refuses("two")


@pytest.mark.parametrize("process_id", ["a/b", "..", "", "Ü" * 100, "x" * 1000, "a b\0c", "\udcff"])
async def test_ids_of_any_form(post: Post, process_id: str) -> None:
    one, _ = post.join("one")
    other, received = post.join(process_id)
    one.send(process_id, "hello")
    assert await got(received) == "hello"
    assert other.send(process_id + "!", "hello")
    assert len(post.names()) == 2


async def test_who_is_dead(post: Post) -> None:
    one, _ = post.join("one")
    two, _ = post.join("two")
    post.bind("dead").close()
    post.bind("dead, and owned nothing").close()
    post.bind("stopped")
    assert not one.refuses("one")
    assert not one.refuses("two")
    assert not one.refuses("stopped")
    assert not one.refuses("never there")
    assert one.refuses("dead")
    assert one.refused == {"dead.sock"}
    one.broadcast("hello")
    dead = {"dead.sock", file_name("dead, and owned nothing")}
    assert one.refused == dead
    assert dead < set(post.names())  # until somebody says that this is settled
    one.bury(dead)
    assert post.names() == ["one.sock", "stopped.sock", "two.sock"]
    assert not one.refused
    two.close()
    assert not one.refuses("two")  # it left


async def test_one_that_takes_nothing(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = post.join("one")
    _, of_two = post.join("two")
    bound = post.bind("stopped")
    sent = 0
    while one.send("stopped", "x" * 7000):
        sent += 1
    assert sent > 1
    assert not one.send("stopped", "again")
    assert not one.broadcast("all")
    assert await got(of_two) == "all"  # the others are not held up
    assert not one.refuses("stopped")
    monkeypatch.setattr(sockets, "FULL_SECONDS", 0.0)
    assert one.send("stopped", "is dropped")  # it is not worth another try
    assert one.broadcast("all")
    for _ in range(sent):
        bound.recv(10_000)
    monkeypatch.undo()
    assert one.send("stopped", "it goes on")
    assert bound.recv(10_000) == b"it goes on"


async def test_two_that_take_nothing_do_not_use_up_what_may_be_sent(post: Post) -> None:
    one, _ = post.join("one")
    _, received = post.join("reading")
    for number in range(3):
        post.bind(f"stopped-{number}")
        while one.send(f"stopped-{number}", "x" * 7000):
            pass
    assert one.send("reading", "hello")
    assert await got(received) == "hello"


async def test_a_socket_that_somebody_removed_is_bound_anew(post: Post) -> None:
    one, received = post.join("one")
    two, _ = post.join("two")
    one.renew()
    inode = (post.folder / "one.sock").stat().st_ino
    (post.folder / "one.sock").unlink()
    one.renew()
    two.send("one", "hello")
    assert await got(received) == "hello"
    shutil.rmtree(post.folder)
    one.renew()
    two.renew()
    one.renew()
    two.send("one", "hello again")
    assert await got(received) == "hello again"
    assert inode
    # Another process's socket under the same name is not ours to remove.
    (post.folder / "one.sock").unlink()
    post.bind("one")
    one.close()
    assert post.names() == ["one.sock", "two.sock"]


async def test_without_sockets_all_is_silence(
    new_post: Callable[[Path], Post], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    post = new_post(tmp_path / "file")
    one, _ = post.join("one")
    one.renew()
    one.renew()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "processes hear of each other" in caplog.text
    assert one.send("two", "hello")
    assert one.broadcast("hello")
    assert not one.refuses("two")
    one.close()


async def test_a_store_without_sockets_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "store.db-processes").touch()
    store = await SQLiteStore.open(tmp_path / "store.db")
    await store.enter("one", 600)
    store.signals.watch("topic")
    store.signals.tell("topic")
    assert await store.renew("one", 600)
    assert await store.orphans(frozenset({"support"}), limit=9) == []
    await store.leave("one")
    await store.close()
    assert len(caplog.records) == 1
