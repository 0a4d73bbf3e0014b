"""Benchmarks: Entracte beside bare proxies, against one mock back end (see README.md)."""
