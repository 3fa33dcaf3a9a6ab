"""`make soak`: random faults against running agents, and an oracle that knows better (docs/soak.md)."""
