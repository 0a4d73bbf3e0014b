"""The address of a server that consists of several processes: held by one, listened on by the others."""

import errno
import socket
from collections.abc import Sequence

_WILDCARDS = ("", "0.0.0.0", "::")
_MISSING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_ATTEMPTS = 20

Name = tuple[socket.AddressFamily, str]


class CannotListen(Exception):
    """Nothing can listen on the address; the text says why, for people."""


class Reservation:
    """Holds an address until `close`. Never listens: connections go to those who do.

    `address` is host:port, with the port that was found where 0 was asked for.
    """

    def __init__(self, sockets: Sequence[socket.socket], address: str) -> None:
        self._sockets = sockets
        self.address = address

    def close(self) -> None:
        """Give the address up."""
        for held in self._sockets:
            held.close()


def reserve(address: str) -> Reservation:
    """Hold `address` (host:port) for processes of this user that listen with SO_REUSEPORT; everybody
    else is refused it. Raises `CannotListen`, also when somebody listens there already."""
    host, colon, digits = address.rpartition(":")
    if not colon or not (digits.isascii() and digits.isdigit()) or int(digits) > 65535:
        raise CannotListen(f"address {address}: it must be host:port")
    port = int(digits)
    try:
        for attempt in range(_ATTEMPTS):
            try:
                sockets = _hold_all(host.strip("[]"), port)
            except OSError as error:
                # The port found for the first of several addresses was taken at the next.
                if port or error.errno != errno.EADDRINUSE or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return Reservation(sockets, f"{host}:{sockets[0].getsockname()[1]}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotListen(f"the address {address} is in use") from error
        raise CannotListen(f"cannot listen on {address}: {error.strerror}") from error
    raise AssertionError("the last attempt returned or raised")


def why_not(address: str) -> str:
    """Why nothing can listen there; empty where something could."""
    try:
        reserve(address).close()
    except CannotListen as error:
        return str(error)
    return ""


def _names(host: str) -> list[Name]:
    """What gRPC listens on for `host`: one socket for both protocols, where it means every interface."""
    if host in _WILDCARDS:
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    if host == "localhost":  # both, whatever the system's table of hosts says
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, str(name[0])) for family, _, _, _, name in found))


def _hold_all(host: str, port: int) -> list[socket.socket]:
    held: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, name in _names(host):
            try:
                held.append(_hold(family, name, port))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error  # this machine has no such protocol or address; another one may do
                continue
            port = held[0].getsockname()[1]
            if host in _WILDCARDS:
                break
    except BaseException:
        for it in held:
            it.close()
        raise
    if not held:
        raise missing or OSError(errno.EADDRNOTAVAIL, "no address")
    return held


def _hold(family: socket.AddressFamily, name: str, port: int) -> socket.socket:
    """Bind to an address alone, then let others of this user bind to it too."""
    # Bound like a server that shares nothing: this fails where somebody listens, with SO_REUSEPORT or
    # without, and where another supervisor has a reservation. Connections that linger from a server
    # before are no hindrance.
    held = _bound(family, name, port, socket.SO_REUSEADDR)
    try:
        # Opened only now, so that of two supervisors that start at once one is refused; and closed to
        # servers that share nothing, which could otherwise slip in while no worker listens.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        found = int(held.getsockname()[1])
        if _can_be_shared(family, name, found):
            return held
    except BaseException:
        held.close()
        raise
    # Not every system takes the option from a socket that is bound.
    held.close()
    return _bound(family, name, found, socket.SO_REUSEPORT)


def _can_be_shared(family: socket.AddressFamily, name: str, port: int) -> bool:
    """Whether a worker could bind to an address that is held."""
    try:
        _bound(family, name, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _bound(family: socket.AddressFamily, name: str, port: int, *options: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, name != "::")
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((name, port))
    except BaseException:
        made.close()
        raise
    return made
