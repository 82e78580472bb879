"""Linux calls that Python 3.11 lacks: namespaces, mounts, and children that end with their parent."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
from dataclasses import dataclass
from pathlib import Path

NEW_MOUNTS, NEW_NETWORK = 0x00020000, 0x40000000
MOUNT_PRIVATE_ALL, REMOUNT = 0x4000 | 0x40000, 0x20
DIE_WITH_PARENT = 1
TUN_DEVICE = Path("/dev/net/tun")
TUN_SET_INTERFACE, TUN_PLAIN = 0x400454CA, 0x0001 | 0x1000
INTERFACE = "net0"

_libc = ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(what: int) -> None:
    """This thread, and processes that it starts from now on, get their own."""
    _done(_libc.unshare(what), "unshare")


def enter(namespace: int, what: int) -> None:
    _done(_libc.setns(namespace, what), "setns")


def own_network() -> int:
    """A descriptor of the network namespace of this thread, which lives as long as a process holds one or is in it."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def own_mounts() -> None:
    """Later mounts are visible to this process and its children alone, and end with the last of them."""
    unshare(NEW_MOUNTS)
    _done(_libc.mount(None, b"/", None, MOUNT_PRIVATE_ALL, None), "mount --make-rprivate /")


def mount_memory(folder: Path, size_bytes: int, *, again: bool = False) -> None:
    """A disk of that size; `again`: resizes the mounted disk. Only after `own_mounts`."""
    options, flags = f"size={size_bytes}".encode(), REMOUNT if again else 0
    _done(_libc.mount(b"palisade-faults", os.fsencode(folder), b"tmpfs", flags, options), f"mount {folder}")


def die_with_parent() -> None:
    """In a child, before its program starts: it is killed when the thread that created it ends for any reason."""
    _done(_libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0), "prctl")


@dataclass(frozen=True, slots=True)
class Entering:
    """Called in a child, before its program starts: it ends with its parent, in the network of that descriptor."""

    network: int | None = None

    def __call__(self) -> None:
        die_with_parent()
        if self.network is not None:
            enter(self.network, NEW_NETWORK)


def open_tun() -> int:
    """One end of a wire whose other end is the interface `net0` of the network namespace of this thread."""
    descriptor = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, TUN_SET_INTERFACE, struct.pack("16sH22x", INTERFACE.encode(), TUN_PLAIN))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
