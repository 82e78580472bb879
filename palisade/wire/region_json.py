"""A region as plain values, for the API and the command line. Pure."""

from __future__ import annotations

from typing import Any

from palisade.vault.regions import Mode, Policy, Region
from palisade.wire.json_results import text_field


def region_shape(region: Region) -> dict[str, Any]:
    """Shape `Region` of the API. Prefix and default are text if they are UTF-8, else base64."""
    shape: dict[str, Any] = {"name": region.name}
    shape |= text_field("prefix", region.prefix)
    shape |= {"mode": region.mode.value, "policy": region.policy.value, "built_in": region.built_in}
    return shape | (text_field("default", region.default) if region.policy is Policy.SAFE_DEFAULT else {})


def fields_from(given: Any) -> dict[str, Any]:
    """The fields of a region to change: bytes and texts as received. Raises ValueError."""
    if not isinstance(given, dict) or not given.keys() <= {"prefix", "mode", "policy", "default"}:
        raise ValueError("only prefix, mode, policy and default of a region can be changed")
    kinds = {"prefix": bytes, "default": bytes, "mode": str, "policy": str}
    if not given or any(type(value) is not kinds[name] for name, value in given.items()):
        raise ValueError(
            "give the fields of the region to change: prefix and default as bytes, mode and policy as texts"
        )
    read: dict[str, Any] = {"mode": Mode, "policy": Policy}
    return {name: read[name](value) if name in read else value for name, value in given.items()}


def region_from(name: str, fields: dict[str, Any]) -> Region:
    """`prefix` and `default` as bytes, `mode` and `policy` as given."""
    mode, policy = fields.get("mode", Mode.STRICT), fields.get("policy", Policy.FAIL_CLOSED)
    return Region(name, fields["prefix"], mode, policy, fields.get("default", b""))
