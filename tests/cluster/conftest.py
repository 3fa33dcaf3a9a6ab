"""A real control plane with fake nodes, started once for all tests here, and a fresh namespace for each.

These tests run by `make test-cluster` alone (docs/cluster.md): `make test` collects nothing here, because a machine
that has not built the programs yet would compile for minutes.
"""

import os
import time
import uuid

import pytest
from lightkube.core import exceptions
from lightkube.models import meta_v1
from lightkube.resources import core_v1

from hack.cluster import assets, grants, run, versions

collect_ignore_glob = [] if os.environ.get("MUSTER_CLUSTER_TESTS") else ["test_*.py"]

NODES = 4
GPUS = 8
WAIT_SECONDS = 60


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
def line():
    """Return the Kubernetes line under test; skip where its programs are neither built nor brought along."""
    name = versions.line_name()
    known = versions.programs(name)
    need([known[part] for part in versions.CONTROL_PLANE])
    return name


def need(programs):
    """Skip where a program is missing: building is `make test-cluster`'s, a test has no minutes for it."""
    missing = [program.name for program in programs if assets.find(program) is None]
    if missing:
        pytest.skip(assets.reason_missing(programs) or f"not built: {', '.join(missing)}")


@pytest.fixture(name="need", scope="session")
def need_fixture():
    """Give need to test modules, which cannot import a conftest."""
    return need


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
