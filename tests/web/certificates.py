"""Certificates for the tests, made when they run."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates for this machine."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._issued = 0
        self.file = self._write("ca", self._sign(self._name, self._key.public_key(), ca=True))

    def issue(
        self,
        name: str = "localhost",
        *,
        days: tuple[float, float] = (-1, 1),
        password: bytes | None = None,
    ) -> Issued:
        """A certificate valid between these days from now."""
        self._issued += 1
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        stem = f"{self._issued}-{name}"
        certificate = self._write(stem, self._sign(subject, key.public_key(), days=days))
        encryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        (file := self._directory / f"{stem}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        return Issued(certificate, file)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        days: tuple[float, float] = (-2, 2),
        ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(timezone.utc)
        local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(_usage(ca), critical=True)
        )
        if not ca:
            builder = builder.add_extension(x509.SubjectAlternativeName(local), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, stem: str, certificate: x509.Certificate) -> Path:
        file = self._directory / f"{stem}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file


def _usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
