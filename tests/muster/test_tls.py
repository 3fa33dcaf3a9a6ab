"""Who a peer is, and what happens to files that do not fit."""

import pytest

from hack import pki
from muster import settings, tls


def context(*names):
    return {"x509_subject_alternative_name": [name.encode() for name in names]}


@pytest.mark.parametrize(
    ("names", "node", "client"),
    [
        (("muster:node:gpu-1",), "gpu-1", ""),
        (("muster:client:alice",), "", "alice"),
        (("gpu-1.example", "muster:node:gpu-1"), "gpu-1", ""),
        (("muster:node:gpu-1", "muster:node:gpu-2"), "", ""),
        (("muster:node:gpu-1", "muster:client:alice"), "", ""),
        (("spiffe://muster:node:gpu-1",), "", ""),
        ((), "", ""),
    ],
)
def test_a_peer_has_one_name_or_none(names, node, client):
    assert (tls.peer_node(context(*names)), tls.peer_client(context(*names))) == (node, client)


def test_a_peer_without_a_certificate_is_nobody():
    assert tls.peer_node({}) == ""


def test_every_file_that_does_not_fit_is_named_at_once(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    files = tls.Files(ca=tmp_path / "ca.pem", certificate=tmp_path / "none.pem", key=tmp_path)
    for read in (tls.channel_credentials, tls.server_credentials):
        with pytest.raises(settings.InvalidSettings) as caught:
            read(files)
        assert [problem.split(":")[0] for problem in caught.value.problems] == ["ca", "certificate", "key"]


def test_files_of_an_authority_make_credentials(tmp_path):
    authority = pki.create(tmp_path)
    assert tls.server_credentials(authority.issue_admitter()) is not None
    assert tls.channel_credentials(authority.issue_node("a")) is not None
