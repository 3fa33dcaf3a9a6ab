"""Wrong TLS files have a name before anything dials."""

import dataclasses
import datetime

import pytest

from hack import pki
from muster import tlscheck


@pytest.fixture
def authority(tmp_path):
    return pki.create(tmp_path / "pki")


def problems(files, *, is_server=False):
    named = {
        field.name: tlscheck.Named(flag=f"--{field.name}", path=getattr(files, field.name))
        for field in dataclasses.fields(files)
    }
    return tlscheck.problems(**named, is_server=is_server)


def test_files_that_work_have_no_problem(authority):
    assert problems(authority.issue_client("me")) == []
    assert problems(authority.issue_node("n1")) == []
    assert problems(authority.issue_admitter(), is_server=True) == []


def test_the_peers_authority_may_be_another(authority, tmp_path):
    elsewhere = pki.create(tmp_path / "elsewhere")
    assert problems(dataclasses.replace(authority.issue_client("me"), ca=elsewhere.folder / "ca.pem")) == []


@pytest.mark.parametrize("is_server", [True, False])
def test_an_expired_certificate_is_named(authority, is_server):
    life = datetime.timedelta(minutes=-1)
    files = authority.issue_admitter(life=life) if is_server else authority.issue_client("me", life=life)
    (problem,) = problems(files, is_server=is_server)
    assert problem == f"--certificate: {files.certificate}: certificate has expired"


def test_a_node_cannot_serve_and_an_admitter_cannot_ask(authority):
    (problem,) = problems(authority.issue_node("n1"), is_server=True)
    assert problem.startswith("--certificate: ")
    assert "purpose" in problem
    (problem,) = problems(authority.issue_admitter())
    assert "purpose" in problem


def test_a_key_of_another_certificate(authority):
    files = authority.issue_client("me")
    (problem,) = problems(dataclasses.replace(files, key=authority.issue_client("you").key))
    assert (
        problem == f"--key: {authority.folder / 'client-you.key'}: does not belong to --certificate {files.certificate}"
    )


def test_every_unreadable_file_at_once(authority, tmp_path):
    (tmp_path / "text").write_text("no PEM")
    files = dataclasses.replace(
        authority.issue_client("me"), ca=tmp_path / "none", certificate=tmp_path, key=tmp_path / "text"
    )
    assert problems(files) == [
        f"--ca: {tmp_path / 'none'}: No such file or directory",
        f"--certificate: {tmp_path}: Is a directory",
        f"--key: {tmp_path / 'text'}: is not PEM",
    ]


@pytest.mark.parametrize("field", ["ca", "certificate", "key"])
def test_pem_with_nothing_in_it(authority, tmp_path, field):
    broken = tmp_path / "broken"
    broken.write_text("-----BEGIN CERTIFICATE-----\nxxxx\n-----END CERTIFICATE-----\n")
    (problem,) = problems(dataclasses.replace(authority.issue_client("me"), **{field: broken}))
    assert problem.startswith(f"--{field}: {broken}: holds no ")
