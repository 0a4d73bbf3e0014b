"""Settings of the scenarios."""

import pytest

pytest.register_assert_rewrite("tests.scenarios.play")
