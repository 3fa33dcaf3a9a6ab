"""Say in one line which tests could not run, and under CI=true fail them.

A test that needs something this machine may lack (a real control plane, containerd) skips with a reason; the summary
counts the reasons, so that "passed" is never read as "all of it ran". In CI nothing may be lacking.

The one exception is marked `hardware`: it needs a real GPU, and is skipped in CI too.
"""

import collections
import os

import pytest

IN_CI = os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("hardware"):
        report.outcome, report.longrepr = "failed", f"cannot run, and CI=true: {reason_of(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if IN_CI and report.skipped:
        report.outcome, report.longrepr = "failed", f"cannot run, and CI=true: {reason_of(report)}"
    return report


def pytest_terminal_summary(terminalreporter):
    line = summary(reason_of(report) for report in terminalreporter.stats.get("skipped", ()))
    if line:
        terminalreporter.write_line(line)


def reason_of(report):
    """Return why a report was skipped; pytest gives (path, line, reason)."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def summary(reasons):
    """Return one line, or an empty text.

    >>> summary(["no kube-apiserver", "no GPU", "no kube-apiserver"])
    'did not run: 2 (no kube-apiserver), 1 (no GPU)'
    """
    counted = collections.Counter(reasons).most_common()
    return "did not run: " + ", ".join(f"{count} ({reason})" for reason, count in counted) if counted else ""
