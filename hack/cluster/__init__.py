"""A real control plane on loopback, built from Go modules at pinned versions: docs/cluster.md."""
