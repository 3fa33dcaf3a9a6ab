"""Say in one line which tests could not run, and under CI=true fail them.

A test on real programs carries the marker `real` with their names: `@pytest.mark.real("containerd", "skopeo", "root")`
(hack/cluster/machine.py knows them). Where something is missing it skips with a reason; the summary counts the reasons,
so that "passed" is never read as "all of it ran". In CI nothing may be lacking.

`make test` lets the chosen tests' programs be built, or in CI installed, once all tests are collected: it alone knows
which are needed, and a plain pytest must not compile for minutes.

The one exception from the rule for CI is marked `hardware`: it needs a real GPU, and is skipped in CI too.
"""

import collections
import contextlib
import os

import pytest

from hack.cluster import build, machine, versions

IN_CI = os.environ.get("CI") == "true"
BUILDS = os.environ.get("MUSTER_TESTS_BUILD") == "1"


def names(item):
    """Return what a test needs of the machine."""
    return {name for mark in item.iter_markers("real") for name in mark.args}


def pytest_collection_finish(session):
    wanted = {name for item in session.items for name in names(item)}
    if not BUILDS or not wanted or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            machine.provide(wanted, versions.line_name(), installs=IN_CI and os.geteuid() == 0)
    except build.Failed as failed:
        pytest.exit(f"cluster: {failed}", returncode=3)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    reason = machine.reason_missing(names(item), versions.line_name())
    if reason:
        pytest.skip(reason)


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
