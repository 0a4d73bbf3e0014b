"""Settings of the whole test run."""

import os

# gRPC's C core writes connection notices to stderr; it reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
