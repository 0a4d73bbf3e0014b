"""Addresses that one process holds and others listen on."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from entracte_server.app import reserving
from entracte_server.app.reserving import CannotListen, Reservation, reserve, why_not

EVERYBODY = (socket.SO_REUSEADDR,)
WORKERS = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)


@contextmanager
def listening(
    port: int, *options: int, host: str = "127.0.0.1", family: socket.AddressFamily = socket.AF_INET
) -> Iterator[socket.socket]:
    """A socket that listens, as servers do: those that share nothing, and our workers."""
    with socket.socket(family, socket.SOCK_STREAM) as it:
        for option in options:
            it.setsockopt(socket.SOL_SOCKET, option, 1)
        it.bind((host, port))
        it.listen()
        yield it


def port_of(reservation: Reservation) -> int:
    return int(reservation.address.rpartition(":")[2])


@pytest.fixture
def held() -> Iterator[Reservation]:
    reservation = reserve("127.0.0.1:0")
    yield reservation
    reservation.close()


def refuse(address: str, words: str) -> None:
    with pytest.raises(CannotListen, match=words):
        reserve(address).close()


def test_workers_listen_and_get_the_connections(held: Reservation) -> None:
    port = port_of(held)
    assert port != 0
    with listening(port, *WORKERS) as one, listening(port, *WORKERS) as other:
        reached: set[socket.socket] = set()
        for it in (one, other):
            it.setblocking(False)
        while len(reached) < 2:  # the chance that 200 connections miss one of them is nil
            assert len(reached) < 200
            with socket.create_connection(("127.0.0.1", port), 5):
                for it in (one, other):
                    try:
                        it.accept()[0].close()
                    except BlockingIOError:
                        continue
                    reached.add(it)


def test_it_does_not_listen_itself(held: Reservation) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(held)), 5)


@pytest.mark.parametrize("options", [(), EVERYBODY, WORKERS], ids=["plain", "usual", "sharing"])
def test_where_somebody_listens_it_is_refused(options: tuple[int, ...]) -> None:
    with listening(0, *options) as it:
        address = f"127.0.0.1:{it.getsockname()[1]}"
        refuse(address, f"the address {address} is in use")
        assert why_not(address) == f"the address {address} is in use"
    reserve(address).close()
    assert why_not(address) == ""


def test_others_cannot_come_between(held: Reservation) -> None:
    """Neither a server that shares nothing, nor another supervisor; while no worker listens, while one
    does, and when it has died."""
    port = port_of(held)

    def others_are_refused() -> None:
        for options in ((), EVERYBODY):
            with pytest.raises(OSError, match="in use"), listening(port, *options):
                pytest.fail("it listens")
        refuse(held.address, "in use")

    others_are_refused()
    with listening(port, *WORKERS):
        others_are_refused()
    others_are_refused()


def test_connections_that_linger_are_no_hindrance() -> None:
    with listening(0, *EVERYBODY) as it:
        port = it.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), 5)
        it.accept()[0].close()  # who closes first has the connection for a minute longer
        client.close()
    reservation = reserve(f"127.0.0.1:{port}")
    with listening(port, *WORKERS):
        reservation.close()


def test_every_interface_means_both_protocols() -> None:
    """As with gRPC, also for `0.0.0.0`."""
    for host in ("0.0.0.0", "[::]"):
        reservation = reserve(f"{host}:0")
        assert reservation.address.startswith(f"{host}:")
        with pytest.raises(OSError, match="in use"), listening(port_of(reservation), *EVERYBODY):
            pytest.fail("it listens")
        reservation.close()


def has_ipv6() -> bool:
    try:
        with listening(0, host="::1", family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_localhost_means_both_addresses() -> None:
    reservation = reserve("localhost:0")
    port = port_of(reservation)
    with pytest.raises(OSError, match="in use"), listening(port, host="::1", family=socket.AF_INET6):
        pytest.fail("it listens")
    reservation.close()
    with listening(port, host="::1", family=socket.AF_INET6):
        refuse(f"localhost:{port}", "in use")


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    refuse(address, "it must be host:port")


def test_an_address_of_another_machine_is_refused() -> None:
    refuse("192.0.2.1:0", "cannot listen on 192.0.2.1:0: ")


def test_where_the_option_must_come_first_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems differ in whether a bound socket can be opened to others."""
    monkeypatch.setattr(reserving, "_can_be_shared", lambda *_: False)
    reservation = reserve("127.0.0.1:0")
    with listening(port_of(reservation), *WORKERS):
        refuse(reservation.address, "in use")
    reservation.close()
