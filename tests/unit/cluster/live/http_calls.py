"""HTTPS calls as anybody's program makes them: a pinned certificate, a header, JSON; nothing of Hocket's."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, NamedTuple

from tests.tokens import CREDENTIALS
from tests.unit.cluster.live.clusters import LIMIT_S

AUTHORIZED = {"Authorization": f"Bearer {CREDENTIALS.without_key.text}"}


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def pinned(certificate: bytes = CREDENTIALS.served.certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificate.decode())
    context.check_hostname = False  # there is one certificate that is trusted
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python's own do from 3.13 on
    return context


def connected(address: str, limit_s: float = LIMIT_S) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(address, context=pinned(), timeout=limit_s)


def call(
    address: str, target: str, body: Any = None, headers: dict[str, str] | None = None, method: str = ""
) -> Answer:
    connection = connected(address)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        told = AUTHORIZED if headers is None else headers
        connection.request(method or ("GET" if data is None else "POST"), target, data, told)
        response = connection.getresponse()
        found = response.read()
        kind = response.headers.get("Content-Type", "")
        said = json.loads(found) if kind == "application/json" else found.decode()
        return Answer(response.status, said, dict(response.headers))
    finally:
        connection.close()
