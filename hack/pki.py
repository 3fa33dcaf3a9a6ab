"""A local certificate authority for the demo, the tests and clusters without one: `python -m hack.pki FOLDER NODE...`.

Writes ca.pem, the admitter's pair and one pair per node or client. The names follow muster/tls.py: a node is its
certificate's SAN URI `muster:node:NAME`, a client is `muster:client:NAME`, an admitter answers to the DNS name
`muster-admitter`.

Invariant: a node's certificate cannot be used to pose as an admitter. It has no DNS name and only the client usage.

Not here: rotation and revocation. Certificates are short-lived (a week) and made anew.
"""

import argparse
import dataclasses
import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster import tls

_LIFE = datetime.timedelta(days=7)
_SKEW = datetime.timedelta(minutes=5)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority that lives in memory and writes into one folder."""

    folder: pathlib.Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue_admitter(self, name: str = "admitter", *, life: datetime.timedelta = _LIFE) -> tls.Files:
        """Write the pair of an admitter that listens on the loopback interface or under the service's name."""
        names = [
            x509.DNSName(tls.ADMITTER_NAME),
            x509.DNSName("localhost"),
            # Under which the API server asks the webhook (daemonset/webhook).
            x509.DNSName("muster-webhook.muster-system.svc"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        return self._issue(name, names, ExtendedKeyUsageOID.SERVER_AUTH, life)

    def issue_node(self, node: str, *, life: datetime.timedelta = _LIFE) -> tls.Files:
        """Write the pair of a node's agent."""
        name = x509.UniformResourceIdentifier(tls.NODE_PREFIX + node)
        return self._issue(f"node-{node}", [name], ExtendedKeyUsageOID.CLIENT_AUTH, life)

    def issue_client(self, client: str, *, life: datetime.timedelta = _LIFE) -> tls.Files:
        """Write the pair of somebody who asks: the operator's command line, a job submitter."""
        name = x509.UniformResourceIdentifier(tls.CLIENT_PREFIX + client)
        return self._issue(f"client-{client}", [name], ExtendedKeyUsageOID.CLIENT_AUTH, life)

    def _issue(
        self, stem: str, names: list[x509.GeneralName], usage: x509.ObjectIdentifier, life: datetime.timedelta
    ) -> tls.Files:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(stem, key.public_key(), self.certificate.subject, life)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        files = tls.Files(
            ca=self.folder / "ca.pem",
            certificate=self.folder / f"{stem}.pem",
            key=self.folder / f"{stem}.key",
        )
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(files.key, key)
        return files


def create(folder: pathlib.Path) -> Authority:
    """Make a new authority and write its certificate; its key stays in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster local authority")])
    certificate = (
        _builder("muster local authority", key.public_key(), name, _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(folder=folder, key=key, certificate=certificate)


def _builder(
    subject: str, public_key: ec.EllipticCurvePublicKey, issuer: x509.Name, life: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251 -- a certificate's dates are wall-clock dates
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])]))
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
    )


def _write_key(path: pathlib.Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Create a local authority, an admitter's pair and one pair per name.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("--client", action="append", default=[])
    arguments = parser.parse_args()
    authority = create(arguments.folder)
    authority.issue_admitter()
    for node in arguments.nodes:
        authority.issue_node(node)
    for client in arguments.client:
        authority.issue_client(client)
    print(f"{arguments.folder}: ca, admitter, {len(arguments.nodes)} nodes, {len(arguments.client)} clients")


if __name__ == "__main__":
    main()
