"""Settings of the store's tests."""

import pytest

# The suite's modules are no test modules by name, so their asserts are explained only on request.
pytest.register_assert_rewrite("entracte_server.testing.store_conformance")
