"""The version of this distribution, as pyproject.toml has it."""

__version__ = "0.1.0"
