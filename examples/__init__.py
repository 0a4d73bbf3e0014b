"""Small agents to run and to read."""
