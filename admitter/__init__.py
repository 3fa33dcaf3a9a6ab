"""The admitter and its edge. gRPC's notes on peers that come and go are not logged as trouble."""

import os

# Read when grpc is imported, so it is set before any module of the package can; an operator's own wish stands.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
