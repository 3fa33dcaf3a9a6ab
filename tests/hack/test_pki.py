"""The local authority's certificates name what they should, and no more."""

import subprocess
import sys

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from hack import pki


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def extension(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind).value


def test_a_node_is_its_uri_and_only_a_client(tmp_path):
    certificate = read(pki.create(tmp_path).issue_node("gpu-1").certificate)
    names = extension(certificate, x509.SubjectAlternativeName)
    assert [name.value for name in names] == ["muster:node:gpu-1"]
    assert list(extension(certificate, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_an_admitter_is_only_a_server(tmp_path):
    certificate = read(pki.create(tmp_path).issue_admitter().certificate)
    names = extension(certificate, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == [
        "muster-admitter",
        "localhost",
        "muster-webhook.muster-system.svc",
    ]
    assert list(extension(certificate, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_keys_are_for_their_owner_alone(tmp_path):
    assert pki.create(tmp_path).issue_client("alice").key.stat().st_mode & 0o777 == 0o600


def test_the_command_writes_all_that_was_asked_for(tmp_path):
    command = [sys.executable, "-m", "hack.pki", str(tmp_path / "pki"), "a", "b", "--client", "alice"]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    names = {path.name for path in (tmp_path / "pki").iterdir()}
    assert names == {
        "ca.pem",
        *(f"{stem}.{kind}" for stem in ("admitter", "node-a", "node-b", "client-alice") for kind in ("pem", "key")),
    }
