"""Asks a server whether it serves: `python -m entracte_server.app.healthcheck [ADDRESS]`.

Exit code 0 where `grpc.health.v1` says SERVING within the time, 1 otherwise. Made for the health
checks of containers: it needs nothing but the installed package.
"""

import argparse
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEFAULT_ADDRESS = "127.0.0.1:50051"


def status_of(address: str, *, service: str = "", timeout: float = 5.0) -> str:
    """The name of the serving status, or of the RPC's status code where there is no answer.

    `service` is a full service name; empty asks about the whole server. `timeout` is in seconds.
    """
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = stub.Check(request, timeout=timeout, wait_for_ready=False)
        except grpc.RpcError as error:
            return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m entracte_server.app.healthcheck",
        description="Asks a server whether it serves: exit code 0 if it does, 1 if not.",
    )
    parser.add_argument("address", nargs="?", default=DEFAULT_ADDRESS, help="host:port (%(default)s)")
    parser.add_argument("--service", default="", help="one service's full name; empty: the whole server")
    parser.add_argument("--timeout", type=float, default=5.0, help="in seconds (%(default)s)")
    options = parser.parse_args(arguments)
    status = status_of(options.address, service=options.service, timeout=options.timeout)
    sys.stdout.write(f"{options.address}: {status}\n")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
