"""A node without hardware: the fake kubelet and its state file."""
