"""Every kind of image that cannot be warmed has one clear reason."""

import json

import pytest

from agent.core import warmmanifest
from agent.model.warm import Descriptor, Image, Platform, Reason, Refused
from hack.images import oci

AMD64 = Platform(os="linux", architecture="amd64")
LAYER = oci.of_files({"true": b"x"})


def described(blob):
    return Descriptor(digest=blob.digest, size=len(blob.data), kind=blob.kind)


def read(content):
    config, *_, manifest = content.blobs
    return warmmanifest.image(
        root=described(content.root),
        manifest=described(manifest),
        manifest_data=manifest.data,
        config_data=config.data,
    )


def test_chain_ids_are_those_of_containerd():
    """The second chain id is the digest of both, as the OCI specification says (seen in containerd 1.6 and 2.2)."""
    image = read(oci.image([oci.generated(16 * oci.MIB, seed) for seed in (1, 2)]))
    assert [layer.chain_id for layer in image.layers] == [
        "sha256:0470d42cbb3a8a05c2163739b0a968e710d3463db118d00cd1bfa55698d1d85a",
        "sha256:5c0edd28e33e525d15ecb32ce9aacdf0bf3a71741d82b4fdcc9dcf7956055741",
    ]


def test_an_index_of_fifty_platforms_gives_the_nodes_own():
    parts = {f"arch{number}": oci.image([LAYER], architecture=f"arch{number}") for number in range(49)}
    index = oci.index({**parts, "amd64": oci.image([LAYER])})
    found = warmmanifest.choose(index.root.data, AMD64)
    assert found.digest == oci.image([LAYER]).root.digest


def test_an_index_without_the_nodes_platform_names_some_that_it_has():
    index = oci.index({f"arch{number}": oci.image([LAYER]) for number in range(50)})
    found = warmmanifest.choose(index.root.data, AMD64)
    assert found.reason is Reason.NO_PLATFORM
    assert found.detail.startswith("not for linux/amd64; for linux/arch0, ")
    assert found.detail.endswith("and 44 more")


def test_arm64_without_a_variant_is_v8():
    manifests = [
        {
            "digest": "sha256:" + "a" * 64,
            "size": 1,
            "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"},
        }
    ]
    data = json.dumps({"manifests": manifests}).encode()
    assert isinstance(warmmanifest.choose(data, Platform(os="linux", architecture="arm64")), Descriptor)


def test_a_plain_manifest_is_its_own_choice():
    assert warmmanifest.choose(oci.image([LAYER]).root.data, AMD64) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", Reason.BAD_MANIFEST),
        (b"[" * 100_000, Reason.BAD_MANIFEST),
        (b'"text"', Reason.BAD_MANIFEST),
        (b'{"schemaVersion": 1, "fsLayers": []}', Reason.SCHEMA_1),
        (b'{"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]}', Reason.BAD_MANIFEST),
        (b'{"manifests": null, "mediaType": "application/vnd.oci.image.index.v1+json"}', Reason.NO_PLATFORM),
    ],
    ids=["no JSON", "too deep", "no object", "schema 1", "an entry without digest", "no entries"],
)
def test_what_is_no_manifest(data, reason):
    assert warmmanifest.choose(data, AMD64).reason is reason


def entry(**more):
    platform = {"os": "linux", "architecture": "amd64"}
    return {"digest": "sha256:" + "a" * 64, "size": 1, "mediaType": "x", "platform": platform, **more}


@pytest.mark.parametrize(
    ("more", "is_read"),
    [
        ({}, True),
        ({"mediaType": "x" * warmmanifest.MAX_KIND}, True),
        ({"mediaType": "x" * (warmmanifest.MAX_KIND + 1)}, False),
        ({"size": warmmanifest.MAX_BLOB_BYTES}, True),
        ({"size": warmmanifest.MAX_BLOB_BYTES + 1}, False),
        ({"size": 10**4000}, False),
        ({"size": -1}, False),
        ({"digest": "sha256:" + "a" * 5000}, False),
    ],
)
def test_no_text_and_no_number_without_bound(more, is_read):
    """What is read stays in memory and goes to others, and a registry may be a tenant's."""
    found = warmmanifest.choose(json.dumps({"manifests": [entry(**more)]}).encode(), AMD64)
    assert isinstance(found, Descriptor) is is_read
    if not is_read:
        assert found.reason is Reason.BAD_MANIFEST
        assert len(found.detail) <= 300


CONFIG = oci.image([LAYER]).blobs[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (oci.of_parts(oci.Blob(oci.CONFIG, b"not JSON"), [LAYER.blob]), Reason.BAD_CONFIG),
        (oci.of_parts(oci.Blob(oci.CONFIG, b'{"rootfs": {"diff_ids": [5]}}'), [LAYER.blob]), Reason.BAD_CONFIG),
        (oci.of_parts(CONFIG, [LAYER.blob, LAYER.blob]), Reason.BAD_CONFIG),
        (oci.of_parts(CONFIG, []), Reason.BAD_MANIFEST),
        (oci.of_parts(CONFIG, [oci.Blob(oci.LAYER, b"")]), Reason.EMPTY_LAYER),
        (
            oci.of_parts(CONFIG, [oci.Blob("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", b"x")]),
            Reason.FOREIGN_LAYER,
        ),
        (oci.of_parts(CONFIG, [LAYER.blob] * 501), Reason.BAD_MANIFEST),
    ],
    ids=["config no JSON", "diff id no digest", "counts differ", "no layers", "zero bytes", "foreign", "501 layers"],
)
def test_what_is_no_image(content, reason):
    found = read(content)
    assert isinstance(found, Refused)
    assert found.reason is reason


def test_an_image_counts_a_layer_that_comes_twice_once():
    image = read(oci.image([LAYER, LAYER]))
    assert isinstance(image, Image)
    assert len(image.layers) == 2
    assert len(image.blobs) == 3
