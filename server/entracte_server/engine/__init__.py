"""The run loop: execution, suspension, resumption, recovery."""
