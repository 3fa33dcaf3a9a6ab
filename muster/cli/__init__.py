"""The operator's command line. gRPC's own lines on the terminal say nothing that an error of ours does not."""

import os

# Read when grpc is imported, so it is set before any module of the package can.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
