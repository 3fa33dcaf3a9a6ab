"""The certificates of one local cluster: an authority, server pairs, client pairs, and the service-account keys.

In: a folder. Out: PEM files in it. A client's user name is its certificate's common name, its groups are the
organisations (Kubernetes' X.509 rule).

Invariant: etcd has an authority of its own, so that no user of the API server can speak to etcd directly and walk
around RBAC.

Why not hack/pki.py: there an identity is a SAN URI, as muster/tls.py wants it; here it is the subject.

Not here: rotation. A cluster lives for hours, its certificates for weeks.
"""

import dataclasses
import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=30)
_SKEW = datetime.timedelta(minutes=5)
_USAGES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate (or a public key) and its private key, as PEM files."""

    certificate: pathlib.Path
    key: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority; its own pair is written too, because the controller manager signs with it."""

    pair: Pair
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue_server(self, stem: str, *names: str) -> Pair:
        """Write the pair of a server on the loopback interface that also answers to `names`."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in ("localhost", *names)]
        alternatives.append(x509.IPAddress(ipaddress.ip_address(LOOPBACK)))
        return self._issue(stem, _subject(stem), x509.SubjectAlternativeName(alternatives))

    def issue_client(self, stem: str, user: str, *groups: str) -> Pair:
        """Write the pair of a user of the API server."""
        return self._issue(stem, _subject(user, groups), None)

    def _issue(self, stem: str, subject: x509.Name, names: x509.SubjectAlternativeName | None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _write(self.pair.certificate.parent, stem, key, builder.sign(self.key, hashes.SHA256()))


def create(folder: pathlib.Path, stem: str) -> Authority:
    """Make a new authority and write its pair as STEM.pem and STEM.key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject(f"muster cluster {stem}")
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signing(), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(pair=_write(folder, stem, key, certificate), key=key, certificate=certificate)


def create_service_account_keys(folder: pathlib.Path) -> Pair:
    """Write the pair that service-account tokens are signed and checked with."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = Pair(certificate=folder / "service-accounts.pub", key=folder / "service-accounts.key")
    pair.certificate.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    _write_key(pair.key, key)
    return pair


def _subject(user: str, groups: tuple[str, ...] = ()) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251 -- a certificate's dates are wall-clock dates
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
    )


def _signing() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(folder: pathlib.Path, stem: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Pair:
    pair = Pair(certificate=folder / f"{stem}.pem", key=folder / f"{stem}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)
    return pair


def _write_key(path: pathlib.Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
