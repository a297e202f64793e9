"""TLS 1.3 on control connections, with a certificate whose key a job or a cluster draws at its start.

No authority vouches for such a certificate: processes that connect know its fingerprint, the SHA-256 of the
public key (as in RFC 7469), which is handed over with the token. A process on the path that has another key
is left before a byte of ours is said. Imports no torch.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import os
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import KeyUsage

NAME = "hocket"
"""The name that every certificate is of."""
_BEGIN, _END = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31)
_RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate, both PEM; ``fingerprint``: the public key's SHA-256, in hex."""

    key: bytes = field(repr=False)
    certificate: bytes
    fingerprint: str

    @property
    def certificate_fingerprint(self) -> str:
        """The whole certificate's SHA-256, as browsers write it."""
        der = ssl.PEM_cert_to_DER_cert(self.certificate.decode())
        return hashlib.sha256(der).digest().hex(":").upper()


def new_identity() -> Identity:
    """An identity that nobody else has."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return _identity(ec.generate_private_key(ec.SECP256R1()))


def identity_of_key(key: bytes) -> Identity:
    """The identity with that private key, PEM; ValueError where it is none of ours."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    try:
        loaded = serialization.load_pem_private_key(key, None)
    except (TypeError, UnsupportedAlgorithm):  # it is encrypted, or of another kind
        raise ValueError("no private key that can be read") from None
    if not isinstance(loaded, EllipticCurvePrivateKey):
        raise ValueError("no private key of an elliptic curve")
    return _identity(loaded)


def _identity(key: EllipticCurvePrivateKey) -> Identity:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)  # clocks of a cluster's machines need not agree
        .not_valid_after(_END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # For clients that take the certificate as an authority's, and look at it strictly.
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Identity(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
        fingerprint_of(certificate.public_bytes(serialization.Encoding.DER)),
    )


def _key_usage() -> KeyUsage:
    from cryptography import x509

    uses = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, encipher_only=False, decipher_only=False, **uses
    )


def pem_fingerprint(certificate: bytes) -> str:
    """The SHA-256 of the public key of a certificate in PEM; ValueError where it is none."""
    return fingerprint_of(ssl.PEM_cert_to_DER_cert(certificate.decode("ascii")))


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 of a certificate's public key; the certificate is DER. ValueError where it is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    key = x509.load_der_x509_certificate(certificate).public_key()
    info = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


@functools.lru_cache(maxsize=64)
def server_context(identity: Identity) -> ssl.SSLContext:
    """The context of the side that is known by ``identity``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes: each connection begins with the certificate
    # Python reads keys from files alone; this one is in memory.
    file = os.memfd_create("hocket-identity", os.MFD_CLOEXEC)
    try:
        os.write(file, identity.key + identity.certificate)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


@functools.cache
def client_context() -> ssl.SSLContext:
    """The context of the side that connects, and looks at the certificate's fingerprint by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Wire:
    """A connected socket, as it is; any thread may send while one receives, until ``deadline_s`` if any."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.deadline_s: float | None = None  # monotonic

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        self._socket.sendall(data)

    def receive(self, most: int) -> bytes:
        """The bytes that have come, at most so many; b"" at the end."""
        if self.deadline_s is not None:
            # A peer that sends a byte now and then must not hold us up for ever.
            left_s = self.deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("it took too long")
            self._socket.settimeout(left_s)
        return self._socket.recv(most)


class Tls:
    """TLS on a wire; any thread may send while one receives. :class:`ssl.SSLError` for what is no TLS."""

    def __init__(self, wire: Wire, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._wire = wire
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        # OpenSSL's state is for one thread at a time; a thread that waits for the network must not hold it.
        self._state, self._sending = threading.Lock(), threading.Lock()

    def handshake(self) -> None:
        """Agree on keys; ConnectionError where the other side hangs up meanwhile."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._feed():
                    raise ConnectionResetError("the other side hung up") from None
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # it is told what was wrong
                raise
            else:
                self._flush()
                return

    @property
    def fingerprint(self) -> str:
        """The other side's, which has proved that it has the key; "" for a certificate of another kind."""
        from cryptography.exceptions import UnsupportedAlgorithm

        certificate = self._tls.getpeercert(binary_form=True)
        try:
            return "" if certificate is None else fingerprint_of(certificate)
        except (ValueError, UnsupportedAlgorithm):
            return ""  # none of ours

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        left = memoryview(data)
        with self._sending:
            while left:
                with self._state:
                    left = left[self._tls.write(left) :]
                    record = self._outgoing.read()
                self._wire.send(record)

    def receive(self, most: int) -> bytes:
        """The bytes that have come, at most so many; b"" at the end."""
        while True:
            with self._state:
                try:
                    return self._tls.read(most)
                except ssl.SSLZeroReturnError:
                    return b""
                except ssl.SSLWantReadError:
                    pass
            if not self._feed():
                return b""

    def _feed(self) -> bool:
        data = self._wire.receive(_RECEIVE_BYTES)
        with self._state:
            self._incoming.write(data)
        return bool(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._wire.send(self._outgoing.read())
