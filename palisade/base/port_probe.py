"""Whether an address is free to listen on, and if not, which process occupies it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

from palisade.base.address import Address
from palisade.base.errors import PalisadeError
from palisade.base.network_reason import reason_of

LISTEN = "0A"
BOUND = "07"


class PortUnavailable(PalisadeError):
    """Cannot listen on an address: the text has the address, the cause (with the process if visible) and the remedy."""

    code = "port-unavailable"


def check_free(address: Address, purpose: str, remedy: str, *, udp: bool = False) -> None:
    """Raise PortUnavailable if `address` cannot be bound. `purpose` is such as 'HTTP of n1'."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            address.host,
            address.port,
            type=socket.SOCK_DGRAM if udp else socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            if not udp:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            if not udp:
                probe.listen(1)
    except socket.gaierror as error:
        raise PortUnavailable(f"{address} ({purpose}) can't be resolved: {reason_of(error)}; {remedy}") from None
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise PortUnavailable(f"can't listen on {address} ({purpose}): {reason_of(error)}; {remedy}") from None
        owner = listener_of(address.port, udp=udp)
        by = f" by {owner}" if owner else ""
        raise PortUnavailable(
            f"{'UDP ' if udp else ''}port {address.port} ({purpose}) is in use{by}; stop that, or {remedy}"
        ) from None


def listener_of(port: int, *, udp: bool = False) -> str | None:
    """'process 123 (etcd)' if visible to this user (Linux only); else None."""
    inodes = _listening_inodes(port, udp)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for link in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(link) in inodes:
                        return f"process {entry.name} ({(entry / 'comm').read_text().strip()})"
    return None


def _listening_inodes(port: int, udp: bool) -> set[str]:
    found = set()
    protocol, listening = ("udp", BOUND) if udp else ("tcp", LISTEN)
    for table in (f"/proc/net/{protocol}", f"/proc/net/{protocol}6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == listening and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found
