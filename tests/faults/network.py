"""A private network for a run: hosts with addresses, and rules for the packets between them.

If Linux permits it each host is a network namespace, whose only interface is a TUN device with a user-space switch at
its other end (`switch.py`). Otherwise each host is a pair of loopback addresses with a relay in between (`relay.py`):
one on which its node listens, and one that the other hosts use.

A run leaves nothing on the machine, however it ends. Namespaces and mounts have no names: they exist only in the
processes of the run, which the kernel kills when their parent ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.faults import kernel
from tests.faults.rules import Rule

CLIENT = "client"
"""The host of the run itself: its clients and writers."""
PORTS = {"http": 7401, "peer": 7501, "stream": 7601}
NETWORK = "198.18.7."
"""From the block reserved for network benchmarks (RFC 2544)."""
LOOPBACK = "127.77"


class Network(Protocol):
    """`named`: how it is implemented, for reports. `disks`: whether `kernel.mount_memory` may be used."""

    named: str
    disks: bool

    def listens_on(self, host: str) -> str: ...

    def advertised(self, host: str) -> str:
        """The address by which the others reach the host."""
        ...

    def enter(self, host: str) -> Callable[[], None]:
        """Called in a new process, before its program starts."""
        ...

    def become(self, rules: Iterable[Rule]) -> None:
        """Exactly these rules apply when it returns."""
        ...

    def close(self) -> None: ...


class _Process:
    """The switch, or the relay."""

    def __init__(self, module: str, given: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            preexec_fn=kernel.die_with_parent,
            start_new_session=True,
        )
        self.become([])

    def become(self, rules: Iterable[Rule]) -> dict[str, Any]:
        lines = self._process
        assert lines.stdin is not None
        assert lines.stdout is not None
        lines.stdin.write(json.dumps([rule.shown() for rule in rules]).encode() + b"\n")
        lines.stdin.flush()
        answer = lines.stdout.readline()
        if not answer:
            raise RuntimeError(f"the network of this run has ended by itself with {lines.wait()}")
        return dict(json.loads(answer))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()


class Namespaces:
    """Created by the main thread of a process before any other thread starts: it moves to the host of the clients.
    Raises OSError, CalledProcessError if that is not permitted."""

    named = "network namespaces"
    disks = True

    def __init__(self, hosts: Sequence[str], seed: int) -> None:
        self._addresses = {host: f"{NETWORK}{number}" for number, host in enumerate([*hosts, CLIENT], 1)}
        self._networks: dict[str, int] = {}
        wires: dict[str, int] = {}
        kernel.own_mounts()
        try:
            for host, address in self._addresses.items():
                wires[host] = self._make(host, address)
            given = {host: {"descriptor": wires[host], "address": self._addresses[host]} for host in wires}
            kernel.enter(self._networks[CLIENT], kernel.NEW_NETWORK)
            self._switch = _Process(
                "tests.faults.switch", {"seed": seed, "hosts": given}, descriptors=list(wires.values())
            )
        finally:
            for wire in wires.values():
                os.close(wire)

    def _make(self, host: str, address: str) -> int:
        kernel.unshare(kernel.NEW_NETWORK)
        self._networks[host] = kernel.own_network()
        wire = kernel.open_tun()
        with contextlib.suppress(OSError):
            Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1", encoding="ascii")
        set_up = f"link set lo up\naddr add {address}/24 dev {kernel.INTERFACE}\nlink set {kernel.INTERFACE} up\n"
        subprocess.run(["ip", "-batch", "-"], input=set_up.encode(), check=True, capture_output=True)
        return wire

    def listens_on(self, host: str) -> str:
        return self._addresses[host]

    advertised = listens_on

    def enter(self, host: str) -> Callable[[], None]:
        return kernel.Entering(self._networks[host])

    def become(self, rules: Iterable[Rule]) -> None:
        self._switch.become(rules)

    def close(self) -> None:
        self._switch.close()
        for network in self._networks.values():
            os.close(network)


class Loopback:
    """Addresses of the loopback network, where namespaces are not permitted. Lost packets are delayed instead: a relay
    of TCP cannot lose a part of a connection, so it holds that until the rules let it pass."""

    named = "loopback addresses with relays"
    disks = False

    def __init__(self, hosts: Sequence[str], seed: int) -> None:
        area = _free_area()
        self._advertised = {host: f"{LOOPBACK}.{area}.{number}" for number, host in enumerate(hosts, 1)}
        self._listens = {host: f"{LOOPBACK}.{area + 1}.{number}" for number, host in enumerate(hosts, 1)}
        given = {host: {"listens": self._listens[host], "advertised": self._advertised[host]} for host in hosts}
        self._relay = _Process("tests.faults.relay", {"seed": seed, "hosts": given, "ports": PORTS})

    def listens_on(self, host: str) -> str:
        return self._listens[host]

    def advertised(self, host: str) -> str:
        return self._advertised[host]

    def enter(self, host: str) -> Callable[[], None]:
        """By an `exec`: the relay identifies the processes of a host by their command lines."""
        return kernel.die_with_parent

    def become(self, rules: Iterable[Rule]) -> None:
        self._relay.become(rules)

    def close(self) -> None:
        self._relay.close()


def _free_area() -> int:
    """The third number of addresses that no other run uses now."""
    for number in range(125):
        area = (os.getpid() + number) % 125 * 2
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((f"{LOOPBACK}.{area}.1", PORTS["http"]))
            return area
    raise RuntimeError(f"no addresses are left below {LOOPBACK}.0.0: too many runs at once")


def namespaces_are_permitted() -> bool:
    """Tested in a process of its own, which leaves no trace."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            Namespaces([], seed=0).close()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def network_of(kind: str, hosts: Sequence[str], seed: int) -> Network:
    """`kind`: 'namespaces', 'loopback', or 'auto'."""
    if kind == "namespaces" or (kind == "auto" and namespaces_are_permitted()):
        return Namespaces(hosts, seed)
    return Loopback(hosts, seed)
