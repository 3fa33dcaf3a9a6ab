"""Test-wide settings."""

import hypothesis

hypothesis.settings.register_profile("muster", max_examples=40, deadline=None, print_blob=True)
hypothesis.settings.load_profile("muster")

pytest_plugins = ["tests.suites"]
