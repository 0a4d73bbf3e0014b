"""What every store must do: test classes to inherit, each of which needs a fixture `store` that gives an
open, empty store.

    class TestOwner(OwnerSuite):
        pass
"""

from tests.store.conformance.decisions import DecisionSuite
from tests.store.conformance.interleavings import check_interleavings
from tests.store.conformance.isolation import IsolationSuite
from tests.store.conformance.owner import OwnerSuite
from tests.store.conformance.reading import ReadingSuite
from tests.store.conformance.requests import RequestSuite

__all__ = [
    "DecisionSuite",
    "IsolationSuite",
    "OwnerSuite",
    "ReadingSuite",
    "RequestSuite",
    "check_interleavings",
]
