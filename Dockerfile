# syntax=docker/dockerfile:1

FROM python:3.11-slim AS builder
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /src
COPY requirements.txt requirements-dev.txt ./
RUN uv venv --quiet --python /usr/local/bin/python3.11 /opt/entracte \
    && uv pip sync --quiet --no-cache --python /opt/entracte --require-hashes --compile-bytecode requirements.txt
# Build tools come from the lock file too. Last, because these folders change most.
COPY pyproject.toml README.md LICENSE ./
COPY client/python client/python
COPY server server
RUN uv pip install --quiet --no-cache --python /opt/entracte --no-deps --compile-bytecode \
        --build-constraints requirements-dev.txt ./client/python . \
    && uv pip check --python /opt/entracte

FROM python:3.11-slim
LABEL org.opencontainers.image.title="entracte-server" \
      org.opencontainers.image.description="A gRPC service that runs LLM agents which stop and wait for people." \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/entracte entracte
COPY --from=builder /opt/entracte /opt/entracte
COPY examples /app/examples
# The server listens beyond loopback only with credentials: give ENTRACTE_API_KEYS when running it.
ENV PATH=/opt/entracte/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GRPC_VERBOSITY=ERROR \
    ENTRACTE_ADDRESS=0.0.0.0:50051 \
    ENTRACTE_STORE=sqlite:////var/lib/entracte/entracte.db
WORKDIR /app
USER entracte
VOLUME /var/lib/entracte
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=6s --start-period=15s \
    CMD ["python", "-m", "entracte_server.app.healthcheck", "127.0.0.1:50051"]
ENTRYPOINT ["entracte"]
CMD ["serve", "examples.support:app"]
