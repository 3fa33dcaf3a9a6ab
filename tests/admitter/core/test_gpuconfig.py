"""What the GPU stack was told, in NVIDIA's own forms, and in forms that are none."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import gpuconfig
from admitter.model.cluster import Told
from muster.model import kube

SPACE = "gpu-operator"
SHARED = """
version: v1
flags:
  migStrategy: none
  plugin: {passDeviceSpecs: true, deviceListStrategy: envvar}
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, replicas: 10}
"""
MPS = """
version: v1
sharing:
  mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}
"""
LAYOUTS = """
version: v1
mig-configs:
  all-disabled:
    - {devices: all, mig-enabled: false}
  all-1g.10gb:
    - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  all-balanced:
    - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 2, "3g.40gb": 1}}
    - {device-filter: "0x20B010DE", devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 2, "3g.20gb": 1}}
  half:
    - {devices: [0, 1], mig-enabled: true, mig-devices: {"3g.20gb": 2}}
    - {devices: [2, 3], mig-enabled: true, mig-devices: {}}
  all-but-the-first:
    - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
    - {devices: [0], mig-enabled: false}
  the-first-and-then-all:
    - {devices: [0], mig-enabled: false}
    - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  another-product-s-first:
    - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
    - {device-filter: "0x20B010DE", devices: [0], mig-enabled: true, mig-devices: {"1g.5gb": 7}}
  no-such-gpus:
    - {devices: [0, 64, -1, 100000000000000000000000000], mig-enabled: false}
"""
MANAGER = Told(settings={"CONFIG_FILE": "/mig-parted-config/config.yaml"}, folders={"/mig-parted-config": "layouts"})
MANAGED = Told(
    settings={
        "CONFIG_FILE": "/config/config.yaml",
        "CONFIG_FILE_SRCDIR": "/available-configs",
        "DEFAULT_CONFIG": "plain",
    },
    folders={"/available-configs": "plugin-configs", "/entry": "entrypoint"},
)


def documents(**files):
    """One ConfigMap a name, each with `config.yaml` or the keys given."""
    return {
        (SPACE, name.replace("_", "-")): {
            key: yaml.safe_load(text)
            for key, text in (keys if isinstance(keys, dict) else {"config.yaml": keys}).items()
        }
        for name, keys in files.items()
    }


def told(**settings):
    return Told(settings=settings)


def test_flags_and_variables_of_a_plugin():
    config = gpuconfig.plugin_config(SPACE, told(MIG_STRATEGY="mixed", PASS_DEVICE_SPECS="true"), {}, {})
    assert config == {"migStrategy": "mixed", "passDeviceSpecs": "true"}


def test_a_file_that_is_not_known_says_nothing():
    assert gpuconfig.plugin_config(SPACE, MANAGED, {}, {}) == {}
    assert gpuconfig.plugin_config(SPACE, Told(), {}, {}) == {}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"nvidia.com/device-plugin.config": "shared"}, {"sharing": "timeSlicing", "replicas": "10"}),
        ({"nvidia.com/device-plugin.config": "mps"}, {"sharing": "mps", "replicas": "4"}),
        ({}, {"sharing": "none"}),
    ],
    ids=["the node's label", "another node's", "the default"],
)
def test_the_config_manager_chooses_by_label(labels, expected):
    choices = documents(plugin_configs={"shared": SHARED, "mps": MPS, "plain": "version: v1"})
    config = gpuconfig.plugin_config(SPACE, MANAGED, labels, choices)
    assert {name: config[name] for name in expected} == expected


def test_a_label_that_names_no_config_says_nothing():
    choices = documents(plugin_configs={"shared": SHARED, "plain": MPS})
    assert gpuconfig.plugin_config(SPACE, MANAGED, {"nvidia.com/device-plugin.config": "typo"}, choices) == {}


def test_what_a_flag_says_stands_above_the_file():
    plain = Told(settings={"CONFIG_FILE": "/c/config.yaml", "MIG_STRATEGY": "single"}, folders={"/c": "shared"})
    config = gpuconfig.plugin_config(SPACE, plain, {}, documents(shared=SHARED))
    assert config == {
        "migStrategy": "single", "passDeviceSpecs": "true", "deviceListStrategy": "envvar", "sharing": "timeSlicing",
        "replicas": "10", "renameByDefault": "true",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-disabled", [("all", {})]),
        ("all-1g.10gb", [("all", {"1g.10gb": 7})]),
        ("all-balanced", [("all", {"1g.10gb": 2, "3g.40gb": 1}), ("all", {"1g.5gb": 2, "3g.20gb": 1})]),
        ("half", [("0,1", {"3g.20gb": 2}), ("2,3", {})]),
        # Entries count in their order: the last one that names a GPU decides, and a filter decides nothing.
        ("all-but-the-first", [(",".join(map(str, range(1, 64))), {"1g.10gb": 7}), ("0", {})]),
        ("the-first-and-then-all", [("all", {"1g.10gb": 7})]),
        ("another-product-s-first", [("all", {"1g.10gb": 7}), ("0", {"1g.5gb": 7})]),
        ("no-such-gpus", [("0", {})]),
        ("no-such", []),
    ],
)
def test_a_layout_by_its_name(name, expected):
    found = gpuconfig.layout(name, SPACE, MANAGER, documents(layouts=LAYOUTS))
    assert found == tuple(kube.MigLayout(gpus=gpus, profiles=profiles) for gpus, profiles in expected)


def test_only_the_maps_that_hold_a_named_file_are_wanted():
    assert gpuconfig.wanted(SPACE, MANAGER) == {(SPACE, "layouts")}
    assert gpuconfig.wanted(SPACE, MANAGED) == {(SPACE, "plugin-configs")}
    assert gpuconfig.wanted(SPACE, Told(folders={"/entry": "entrypoint"})) == frozenset()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["mig-configs", "x", "devices", "mig-enabled", "mig-devices", "flags", "plugin", "sharing", "mps", "resources",
             "replicas", "migStrategy", "timeSlicing", "passDeviceSpecs", "all"]
        )
        | st.integers(),
        inner,
        max_size=5,
    ),
    max_leaves=30,
)  # fmt: skip


@given(ANYTHING)
def test_a_document_of_any_form_makes_bounded_words_and_no_crash(document):
    files = {(SPACE, "layouts"): {"config.yaml": document}}
    for entry in gpuconfig.layout("x", SPACE, MANAGER, files):
        assert entry.gpus == "all" or all(part.lstrip("-").isdecimal() for part in entry.gpus.split(","))
        assert all(isinstance(name, str) and count >= 0 for name, count in entry.profiles.items())
    config = gpuconfig.plugin_config(SPACE, MANAGER, {}, files)
    assert all(isinstance(value, str) and len(value) <= 256 for value in config.values())
