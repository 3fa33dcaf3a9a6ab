"""A node without hardware: host files around the fake driver, and the fake kubelet."""
