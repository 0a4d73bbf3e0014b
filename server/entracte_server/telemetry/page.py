"""The page that Prometheus reads."""

import socket
import threading
from http.server import ThreadingHTTPServer

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, MetricsHandler

READER_SECONDS = 10.0
"""How long a reader of the page may be silent."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class MetricsPage:
    """Serves the metrics of its `reader` from a thread of its own. `shared`: a worker that replaces another
    may listen while the other still does. Raises `OSError` when the port is taken, `ValueError` for an
    address that is none."""

    def __init__(self, address: str, *, offset: int = 0, shared: bool = False) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError(f"metrics_address {address!r}: give host:port")
        host = host.strip("[]")
        registry = CollectorRegistry()
        self.reader = PrometheusMetricReader(scope_info_enabled=False, registry=registry)
        handler = MetricsHandler.factory(registry)
        handler.timeout = READER_SECONDS  # type: ignore[attr-defined]
        kind = type(
            "Server",
            (_Server,),
            {
                "address_family": socket.AF_INET6 if ":" in host else socket.AF_INET,
                "allow_reuse_port": shared,
            },
        )
        # Port 0 takes any free one, for each.
        number = int(port) + offset if int(port) else 0
        try:
            self._server: ThreadingHTTPServer = kind((host, number), handler)
        except (OSError, OverflowError) as error:
            raise OSError(f"metrics_address: cannot listen on {host}:{number}: {error}") from None
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="entracte-metrics", daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
