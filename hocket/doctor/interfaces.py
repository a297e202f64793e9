"""Network interfaces of this machine: addresses, state and rate, as the kernel tells of them."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from pathlib import Path

import msgspec

SYSTEM = Path("/sys/class/net")
_INET6 = Path("/proc/net/if_inet6")
_SIOCGIFADDR, _SIOCGIFFLAGS = 0x8915, 0x8913
_UP, _LOOPBACK = 0x1, 0x8
_GLOBAL = "00"  # of an IPv6 address that other machines can reach; link-local ones need more than a number


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """One interface; ``rate_bps`` is None where its driver does not say, as of virtual ones."""

    name: str
    addresses: list[str] = []
    up: bool = False
    loopback: bool = False
    rate_bps: float | None = None


def interfaces(system: Path = SYSTEM) -> list[Interface]:
    """All interfaces of this process's network namespace; ``system``: where the kernel tells their rates."""
    inet6 = _inet6_addresses()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            flags = _asked(asked, _SIOCGIFFLAGS, name)
            address = _asked(asked, _SIOCGIFADDR, name)
            inet4 = [] if address is None else [socket.inet_ntoa(address[4:8])]
            bits = 0 if flags is None else struct.unpack("h", flags[:2])[0]
            found.append(
                Interface(
                    name=name,
                    addresses=inet4 + inet6.get(name, []),
                    up=bool(bits & _UP),
                    loopback=bool(bits & _LOOPBACK),
                    rate_bps=_rate_bps(system / name),
                )
            )
    return found


def _asked(to: socket.socket, request: int, name: str) -> bytes | None:
    """The answer to ``request`` about an interface, behind its name; None where it has none."""
    try:
        return fcntl.ioctl(to, request, struct.pack("256s", name.encode()[:15]))[16:]
    except OSError:
        return None


def _inet6_addresses() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):  # a kernel without IPv6
        for line in _INET6.read_text().splitlines():
            number, _, _, scope, _, name = line.split()
            if scope == _GLOBAL:
                address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(number))
                found.setdefault(name, []).append(address)
    return found


def _rate_bps(interface: Path) -> float | None:
    try:
        megabits = int((interface / "speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 1e6 if megabits > 0 else None
