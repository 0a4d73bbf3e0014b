"""Which store the servers of a test get where the test does not say.

A module of tests that is to run on both stores has

    pytestmark = pytest.mark.usefixtures("each_store")

and starts its servers with `default_store()` among their settings, as `tests.rpc.support` and
`tests.cases.support` do.
"""

url = ""
"""Set by the fixture; empty: a file of its own for each server."""


def default_store() -> dict[str, str]:
    """The setting, for `entracte_server.testing.serve`."""
    return {"store": url} if url else {}
