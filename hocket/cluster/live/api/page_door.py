"""The place where browsers find a cluster's page: on this machine for its users, elsewhere with the token."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from hocket.cluster.live.api.application import Backend, HttpService, api_application, page_application
from hocket.cluster.live.listeners import tcp_listener
from hocket.errors import HocketError


@dataclass(frozen=True, kw_only=True)
class PageDoor:
    """A socket that is listened at, and what is served there; ``url``: of the page.

    ``is_open``: other machines reach it, so that it is within TLS and shows nothing without the token.
    """

    listener: socket.socket
    service: HttpService
    url: str
    is_open: bool


def page_door(host: str, port: int, page: bytes, backend: Backend) -> PageDoor:
    """Listen for those who ask for ``page``; HocketError where that is not possible.

    At an address of this machine alone, everybody reads the page who asks by that address: one from elsewhere
    that lets its own name point here reads nothing.
    """
    try:
        listener = tcp_listener(host, port)
    except HocketError as error:
        raise HocketError(f"the page: {error}") from None
    address, bound = listener.getsockname()[:2]
    if ipaddress.ip_address(address).is_loopback:
        names = {f"{name}:{bound}" for name in (_written(host), "127.0.0.1", "localhost")}
        service = HttpService(page_application(backend, page, names), backend.refuse)
        return PageDoor(
            listener=listener, service=service, url=f"http://{_written(host)}:{bound}/", is_open=False
        )
    name = socket.gethostname() if ipaddress.ip_address(address).is_unspecified else _written(host)
    return PageDoor(
        listener=listener,
        service=HttpService(api_application(backend, page), backend.refuse),
        url=f"https://{name}:{bound}/",
        is_open=True,
    )


def _written(host: str) -> str:
    """A host as a URL has it."""
    return f"[{host}]" if ":" in host else host
