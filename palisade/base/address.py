"""host:port, validated at construction. IPv6 hosts are written in brackets: [::1]:7401."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from palisade.base.errors import PalisadeError

HOST = re.compile(r"[A-Za-z0-9.:_%-]{1,253}")
HTTP_EXAMPLE, STREAM_EXAMPLE = "127.0.0.1:7401", "127.0.0.1:7601"
"""The first ports of `palisade up`, for messages."""


class AddressError(PalisadeError, ValueError):
    """Not a valid host:port; the text names the fault."""

    code = "bad-address"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    host: str
    port: int

    def __post_init__(self) -> None:
        if not HOST.fullmatch(self.host):
            raise AddressError(f"{self.host!r} is not a host name or address")
        if not 1 <= self.port <= 65535:
            raise AddressError(f"port {self.port} is out of range; give 1 to 65535")

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @classmethod
    def parse(cls, text: str, example: str = HTTP_EXAMPLE) -> Address:
        """Raise AddressError unless `text` is host:port. `example`: for the message."""
        host, ports = split_host(text)
        if len(ports) != 1:
            raise AddressError(f"{text!r} is not host:port; write it such as {example}")
        return cls(host, parse_port(ports[0]))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Whether it stands for every address of the machine: 0.0.0.0 or ::."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """The host as it is written in an address or URL."""
    return f"[{host}]" if ":" in host else host


def split_host(text: str) -> tuple[str, list[str]]:
    """(host, the parts after it, separated by colons)."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise AddressError(f"{text!r}: the bracket is not closed; write IPv6 such as [::1]:7401")
        return host, rest.split(":")[1:]
    host, *rest_parts = text.split(":")
    return host, rest_parts


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise AddressError(f"{text!r} is not a port; give a number from 1 to 65535")
    return int(text)
