"""What every store must do: test classes to inherit, each of which needs a fixture `store` that gives an
open, empty store.

    from tests.store.conformance.owner import OwnerSuite

    class TestOwner(OwnerSuite):
        pass

`interleavings.check_interleavings` takes a function that opens one. Nothing is exported from here:
`builders` is used by processes that need no test tools.
"""
