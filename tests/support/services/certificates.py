"""Certificates for services that speak TLS: an authority made on the spot, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """Files that prove a name."""

    cert: Path
    key: Path
    both: Path
    """The key, and the certificate after it: as a server takes them."""


class Authority:
    """Signs certificates, good for a day."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.file = folder / f"{name}.pem"
        """Its own certificate: give this to those that are to trust it."""
        made = self._begun(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def identity(self, name: str, *addresses: str) -> Identity:
        """:param addresses: by which a server is reached; none for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._begun(_named(name), key)
        if addresses:
            names = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        found = Identity(*(self._folder / f"{name}{end}" for end in ("-cert.pem", "-key.pem", ".pem")))
        found.cert.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        found.both.write_bytes(found.key.read_bytes() + found.cert.read_bytes())
        return found

    def _begun(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def name_in(certificate: bytes) -> str:
    """The common name in a certificate, as a peer shows it."""
    (name,) = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)
