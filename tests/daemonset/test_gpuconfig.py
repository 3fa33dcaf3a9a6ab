"""The component daemonset/gpuconfig gives one right, on named ConfigMaps, and leaves the rest of an overlay as it was."""

import os

import pytest
import yaml

from hack import check_manifests

ROOT = check_manifests.ROOT


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    overlay = tmp_path_factory.mktemp("overlay")
    to_root = os.path.relpath(ROOT, overlay)
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{to_root}/daemonset/base"],
        "components": [f"{to_root}/daemonset/gpuconfig"],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return check_manifests.render(overlay)


def test_it_fits_the_base(rendered):
    assert check_manifests.problems(rendered) == []


def test_it_grants_get_on_named_config_maps_in_one_namespace(rendered):
    plain = check_manifests.render(ROOT / "daemonset/base")
    added = [item for item in rendered if item not in plain]
    assert sorted((item["kind"], item["metadata"]["namespace"]) for item in added) == [
        ("Role", "gpu-operator"),
        ("RoleBinding", "gpu-operator"),
    ]
    (role,) = [item for item in added if item["kind"] == "Role"]
    (rule,) = role["rules"]
    assert (rule["resources"], rule["verbs"]) == (["configmaps"], ["get"])
    assert rule["resourceNames"]
    assert len(rendered) == len(plain) + 2
