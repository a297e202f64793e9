"""Namespaces of a lab's nodes, from within: a thread that goes there, and a socket that stays there."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SIOCGIFFLAGS = 0x8913
_UP_AND_RUNNING = 0x1 | 0x40


def go_to(namespace: str) -> None:
    """Let this thread be in a namespace, and its process where it is; OSError where that cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(_path(namespace), os.O_RDONLY)
    try:
        if libc.setns(descriptor, _NEW_NETWORK) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    finally:
        os.close(descriptor)


class NodeLink:
    """A node's end of its link, asked again and again through a socket in the node's namespace.

    That takes a system call, where a command in the namespace takes a process. The socket keeps the namespace
    from ending, until a question finds that its name is gone.
    """

    def __init__(self, namespace: str, interface: str) -> None:
        self._namespace, self._interface = namespace, interface
        self._socket: socket.socket | None = None
        self._inode = 0

    def is_down(self) -> bool:
        """True if nothing passes there, at either end of the link; False also where nobody can tell."""
        try:
            inode = os.stat(_path(self._namespace)).st_ino
        except OSError:
            self._close()
            return False
        if inode != self._inode:  # it was made anew
            self._close()
            self._inode, self._socket = inode, self._opened()
        if self._socket is None:
            return False
        request = struct.pack("256s", self._interface.encode())
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFFLAGS, request)
        except OSError:
            return True  # there is no such interface
        (flags,) = struct.unpack_from("H", answer, 16)
        return bool(flags & _UP_AND_RUNNING != _UP_AND_RUNNING)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._inode = None, 0

    def _opened(self) -> socket.socket | None:
        opened: list[socket.socket] = []

        def open_there() -> None:
            with contextlib.suppress(OSError):
                go_to(self._namespace)
                opened.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

        thread = threading.Thread(target=open_there, name="hocket-lab")
        thread.start()
        thread.join()
        return opened[0] if opened else None


def _path(namespace: str) -> str:
    return os.path.join("/run/netns", namespace)
