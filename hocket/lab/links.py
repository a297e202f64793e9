"""The kernel's state of labs, read and changed with iproute2's ``ip`` and ``tc``.

A lab is nothing but network namespaces: one for each node, and one for the switch, which holds a bridge and
the other ends of the nodes' links. The machine's own namespace gets no interface, address or route, so labs
cannot meet its networks, its firewall or each other; and deleting the namespaces deletes everything.

Names say what belongs to which lab, and nothing else is kept anywhere: ``hocket-LAB-switch`` is there from
the first moment of a lab to its last, ``hocket-LAB-nodeI`` in between, and the bridge goes up last of all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hocket import ports
from hocket.errors import HocketError
from hocket.lab.traffic_shaping import introduce, segments_on_the_way, shaper
from hocket.process_stats import all_pids
from hocket.signals import uninterrupted

INTERFACE = "eth0"
_BRIDGE = "switch"
CONGESTION_CONTROL = "cubic"  # Linux's own choice; a machine's other one, BBR, shares links unevenly
_NETWORK = "10.77.0.0/24"
_KNOWN_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_OWN_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"
_UNEVEN = "has no {usual}: its connections use {control}, and may share links unevenly; load tcp_{usual}"
_COUPLED = (
    "has no htb or no u32: connections may share links unevenly, and what travels one way slows down what"
    " travels the other; load sch_htb and cls_u32"
)
_NAMESPACE = re.compile(r"hocket-(?P<lab>.+)-(?:switch|node(?P<index>\d+))")
_CALL_S = 60.0  # far more than any call takes, even for 250 nodes
_SYSTEM_PATH = "/usr/sbin:/sbin"  # where iproute2 often is, and an ordinary PATH often does not lead


@dataclass(frozen=True, kw_only=True)
class LabNode:
    """One machine of a lab: ``interface`` has ``address``, both in ``namespace``."""

    index: int
    name: str
    namespace: str
    address: str
    interface: str = INTERFACE


def node_of(lab: str, index: int) -> LabNode:
    """Node ``index`` (0 to 249) of a lab; every lab has the same addresses, as none can see another's."""
    return LabNode(
        index=index,
        name=f"node{index}",
        namespace=f"hocket-{lab}-node{index}",
        address=f"10.77.0.{index + 1}",
    )


def switch_of(lab: str) -> str:
    """The namespace of a lab's bridge."""
    return f"hocket-{lab}-switch"


def check_machine() -> None:
    """Refuse a machine, or a user, that cannot have labs; raises HocketError."""
    if not sys.platform.startswith("linux"):
        raise HocketError(f"a lab is made of Linux network namespaces, and this is {sys.platform}; use Linux")
    if os.geteuid() != 0:
        raise HocketError(f"labs are for root, and this is user {os.geteuid()}; run the command with sudo")
    for tool in ("ip", "tc"):
        tool_path(tool)


def tool_path(tool: str) -> str:
    """The path of ``ip`` or ``tc``; HocketError where there is none."""
    path = shutil.which(tool, path=os.pathsep.join((os.environ.get("PATH", ""), _SYSTEM_PATH)))
    if path is None:
        raise HocketError(f"a lab needs '{tool}', which is not on the PATH; install iproute2")
    return path


def existing() -> dict[str, set[int]]:
    """The indices of the nodes of every lab, whole or not, that the kernel has something of."""
    found: dict[str, set[int]] = {}
    listed = _call("ip", "-j", "netns", "list")
    for entry in json.loads(listed or "[]"):
        if match := _NAMESPACE.fullmatch(entry["name"]):
            indices = found.setdefault(match["lab"], set())
            if match["index"] is not None:
                indices.add(int(match["index"]))
    return found


def is_there(namespace: str) -> bool:
    """True if there is a namespace of this name."""
    return Path("/run/netns", namespace).exists()


def rate_of(lab: str) -> float | None:
    """The rate in bits per second that node 0 is limited to; None where the switch is not up yet."""
    switch = switch_of(lab)
    # Where `ip netns add` was killed, there is a name that no namespace is behind.
    with contextlib.suppress(HocketError):
        up = json.loads(_call("ip", "-n", switch, "-j", "link", "show", "up", "type", "bridge") or "[]")
        if any(link.get("ifname") == _BRIDGE for link in up):  # ip prints {} for what it leaves out
            found = json.loads(_call("tc", "-n", switch, "-j", "qdisc", "show", "dev", "node0", "root"))
            return float(found[0]["options"]["rate"] * 8)
    return None


def made_with(lab: str) -> int:
    """The number of nodes that a lab was made with: node 0 knows all of them as neighbours."""
    found = _call("ip", "-n", node_of(lab, 0).namespace, "-j", "neigh", "show", "nud", "permanent")
    return len(json.loads(found or "[]"))


def claim(lab: str, holder: str | None) -> None:
    """Make the switch's namespace, which only one can do; HocketError where it is there already."""
    if lab in existing():
        raise HocketError(f"lab '{lab}' exists already; end it first: hocket lab down --name {lab}")
    _call("ip", "netns", "add", switch_of(lab))
    if holder is not None:
        _call("ip", "-n", switch_of(lab), "link", "set", "lo", "alias", holder)


def holder_of(lab: str) -> str | None:
    """The holder that :func:`claim` was told; None where that was None, and where there is no such lab."""
    switch = switch_of(lab)
    if is_there(switch):
        with contextlib.suppress(HocketError):  # as in rate_of
            for link in json.loads(_call("ip", "-n", switch, "-j", "link", "show", "lo") or "[]"):
                found: str | None = link.get("ifalias")
                return found
    return None


def build(lab: str, nodes: Sequence[LabNode], rate_bps: float, together: int) -> list[str]:
    """Make everything of a claimed lab, the switch's being up last; what the kernel lacks for it.

    together: how many segments TCP hands over at once at most.

    Neighbours are written down, not asked for: all namespaces share one table of learned ones, and its
    1024 places would be too few for 33 nodes that all talk to each other, and for the machine itself.
    """
    switch, segments = switch_of(lab), segments_on_the_way(rate_bps)
    _call("ip", "-batch", "-", script=[f"netns add {node.namespace}" for node in nodes])
    links = [f"link add {_BRIDGE} type bridge"]
    for node in nodes:
        links += [
            f"link add {node.name} type veth"
            f" peer name {node.interface} address {_mac(node)} netns {node.namespace}",
            f"link set {node.name} master {_BRIDGE} up",
        ]
    _call("ip", "-n", switch, "-batch", "-", script=links)
    neighbours = [f"neigh add {n.address} lladdr {_mac(n)} dev {INTERFACE} nud permanent" for n in nodes]
    routed = f"route replace {_NETWORK} dev {INTERFACE} proto kernel scope link"
    routed += f" cwnd lock {segments} initcwnd {segments}"
    has_cubic = CONGESTION_CONTROL in _KNOWN_CONTROLS.read_text().split()
    routed += f" congctl {CONGESTION_CONTROL}" if has_cubic else ""
    for node in nodes:
        device = node.interface
        own = ["link set lo up", f"addr add {node.address}/24 dev {device}"]
        own.append(f"link set {device} up gso_max_segs {together}")
        own.append(f"{routed} src {node.address}")
        _call("ip", "-n", node.namespace, "-batch", "-", script=own + neighbours)
    classes, peers = _knows_classes(nodes[0], rate_bps, together), [node.address for node in nodes]
    shared = partial(shaper, rate_bps=rate_bps, together=together, peers=peers, classes=classes)
    shapers = {node.namespace: shared(node.interface) for node in nodes}
    shapers[switch] = [line for node in nodes for line in shared(node.name, to_peers=False)]
    for namespace, lines in shapers.items():
        _call("tc", "-n", namespace, "-batch", "-", script=lines)
    lacks = []
    if not has_cubic:  # namespaces take over what the machine itself uses
        control = _call("ip", "netns", "exec", nodes[0].namespace, "cat", _OWN_CONTROL).strip()
        if control != CONGESTION_CONTROL:
            lacks.append(_UNEVEN.format(usual=CONGESTION_CONTROL, control=control))
    if not classes:
        lacks.append(_COUPLED)
    _call("ip", "-n", switch, "link", "set", _BRIDGE, "up")
    with uninterrupted():
        introduce([(node.namespace, node.address) for node in nodes])
    return lacks


def _knows_classes(node: LabNode, rate_bps: float, together: int) -> bool:
    """True if the kernel can tell packets apart, tried on ``node``, which is left as it was."""
    tried = shaper(node.interface, rate_bps, together=together)
    try:
        _call("tc", "-n", node.namespace, "-batch", "-", script=tried)
    except HocketError:
        return False
    finally:
        with contextlib.suppress(HocketError):  # there is nothing where not even the first line is known
            _call("tc", "-n", node.namespace, "qdisc", "del", "dev", node.interface, "root")
    return True


def delete(lab: str, nodes: Iterable[LabNode]) -> None:
    """Delete the namespaces and all that is in them, the switch's last: until then the lab has its name."""
    for namespace in (*(node.namespace for node in nodes), switch_of(lab)):
        if is_there(namespace):
            _call("ip", "netns", "delete", namespace)


def port_in(node: LabNode) -> int:
    """A free port of the node (:func:`~hocket.ports.free_port`)."""
    program = (sys.executable, "-IS", ports.__file__, node.address)
    return int(_finished((tool_path("ip"), "netns", "exec", node.namespace, *program), ()))


def pids_in(namespaces: Iterable[str]) -> dict[str, list[int]]:
    """The processes in each of these namespaces, this one left out: in one pass over all processes."""
    found: dict[str, list[int]] = {namespace: [] for namespace in namespaces}
    by_identity = {}
    for namespace in found:
        with contextlib.suppress(OSError):
            status = Path("/run/netns", namespace).stat()
            by_identity[status.st_dev, status.st_ino] = namespace
    for pid in all_pids():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            status = Path(f"/proc/{pid}/ns/net").stat()
            if (namespace := by_identity.get((status.st_dev, status.st_ino), "")) and pid != os.getpid():
                found[namespace].append(pid)
    return found


def _mac(node: LabNode) -> str:
    return f"02:00:0a:4d:00:{node.index + 1:02x}"


def _call(tool: str, *arguments: str, script: Sequence[str] = ()) -> str:
    """The output of ``ip`` or ``tc``; ``script``: the lines that its ``-batch -`` reads."""
    with uninterrupted():
        return _finished((tool_path(tool), *arguments), script)


def _finished(command: Sequence[str], script: Sequence[str]) -> str:
    tool, asked = Path(command[0]).name, " ".join(command[1:])
    try:
        ran = subprocess.run(
            command,
            input="".join(f"{line}\n" for line in script),
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise HocketError(f"'{tool} {asked}' did not end within {_CALL_S:g} s; try again") from None
    if ran.returncode == 0:
        return ran.stdout
    said = ran.stderr.strip()
    if failed := re.search(r"\s*Command failed -:(\d+)\s*$", said):
        asked, said = script[int(failed[1]) - 1], said[: failed.start()]
    raise HocketError(
        f"'{tool} {asked}' failed: {said or f'status {ran.returncode}'}; a lab needs a kernel with network"
        " namespaces, veth, bridge and tbf, and the capabilities SYS_ADMIN and NET_ADMIN"
    )
