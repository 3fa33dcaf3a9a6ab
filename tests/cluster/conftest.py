"""A real control plane with fake nodes, started once for all tests here, and a fresh namespace for each.

A test that uses one of the fixtures in NEEDS is marked `real` with what the fixture starts (tests/suites.py): it runs in
a stage of its own, and skips where something is missing. The other tests here run with the unit tests.
"""

import pathlib
import time
import uuid

import pytest
from lightkube.core import exceptions
from lightkube.models import meta_v1
from lightkube.resources import core_v1

from hack.cluster import extensions, grants, machine, run, versions

HERE = pathlib.Path(__file__).parent
NODES = 4
GPUS = 8
WAIT_SECONDS = 60
TIMEOUT_SECONDS = 400  # the first test to use a cluster waits for its start, for every part with a bound of its own
NEEDS = {
    "built": versions.CONTROL_PLANE,
    "queued": tuple(extensions.EXTENSIONS),
    "real": (*versions.NODE, "runc", machine.ROOT),
}
"""Fixture -> what a test that uses it, directly or not, needs of the machine."""


@pytest.hookimpl(tryfirst=True)  # before the markers are selected by -m
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            used = [NEEDS[name] for name in getattr(item, "fixturenames", ()) if name in NEEDS]
            for names in used:
                item.add_marker(pytest.mark.real(*names))
            if used:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


def wait_for(condition, what):
    """Return the first true answer of `condition`; fail when it does not come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    pytest.fail(f"waited {WAIT_SECONDS} s for {what}")


@pytest.fixture(name="wait_for", scope="session")
def wait_for_fixture():
    """Give wait_for to test modules, which cannot import a conftest."""
    return wait_for


@pytest.fixture(scope="session")
def built():
    """Stand for the control plane's programs: they are there when a test that uses this one starts."""


@pytest.fixture(scope="session")
def line(built):
    """Return the Kubernetes line under test."""
    return versions.line_name()


@pytest.fixture(scope="session")
def cluster(line, tmp_path_factory, request):
    """Return a running cluster; its logs are kept when a test failed."""
    started = run.start(tmp_path_factory.mktemp("cluster"), line, nodes=NODES, gpus=GPUS)
    yield started
    run.stop(started, keep=bool(request.session.testsfailed))


@pytest.fixture
def new_cluster(line, tmp_path):
    """Start clusters of a test's own; they end with it."""
    started = []

    def start(**options):
        started.append(run.start(tmp_path / f"cluster-{len(started)}", line, **options))
        return started[-1]

    yield start
    for each in started:
        run.stop(each)


@pytest.fixture(scope="session")
def client(cluster):
    """Return the administrator's client."""
    connection = grants.client(cluster.kubeconfig)
    yield connection
    connection.close()


@pytest.fixture
def namespace(client):
    """Return the name of a namespace of the test's own, ready to take pods."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    client.create(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name=name)))

    def has_account():
        try:
            return client.get(core_v1.ServiceAccount, "default", namespace=name)
        except exceptions.ApiError:
            return None

    # Pods are refused until the controller manager has made the namespace's account.
    wait_for(has_account, f"the service account of {name}")
    yield name
    client.delete(core_v1.Namespace, name)
