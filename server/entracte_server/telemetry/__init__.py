"""What is recorded of runs in traces and metrics. `base` is all that the layers above know, and records
nothing; `otel` does it with OpenTelemetry, which is loaded only where a setting asks for it."""
