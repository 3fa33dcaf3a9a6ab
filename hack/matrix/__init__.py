"""Which profile of the DaemonSet sees which fault: every capture replayed with the profile's planes taken away."""
