"""Objects and procedures as rows of tables and lines of text."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from palisade.base.counted import counted

HEADER = ("name", "what", "revision")
PROCEDURES_HEADER = ("procedure", "operation", "state", "since", "waits for")
Shape = dict[str, Any]


def object_row(collection: str, shape: Shape) -> tuple[str, str, str]:
    what = f"damaged: {shape['damaged']}" if "damaged" in shape else SUMMARIES[collection](shape)
    return shape["name"], what, str(shape["mod_revision"])


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def of_properties(shape: Shape) -> str:
    return ", ".join(f"{name}={text}" for name, text in shape["properties"].items())


def of_table(shape: Shape) -> str:
    columns = ", ".join(f"{each['name']} {each['type']}" for each in shape["columns"])
    return columns + (f" [{of_properties(shape)}]" if shape["properties"] else "")


def of_series(shape: Shape) -> str:
    own = [f"{each['name']} {each['type']}" for each in shape["series"]]
    return ", ".join(own + ([f"template {shape['template']}"] if shape.get("template") else []))


def of_subject(shape: Shape) -> str:
    grants = [f"{each['privilege']} on {each['prefix'] or 'everything'}" for each in shape["grants"]]
    return ", ".join([f"role {name}" for name in shape.get("roles", [])] + grants) or "no permissions"


SUMMARIES: dict[str, Callable[[Shape], str]] = {
    "databases": of_properties,
    "tables": of_table,
    "devices": of_series,
    "templates": of_series,
    "template-paths": lambda shape: f"template {shape['template']}",
    "views": lambda shape: f"view of {shape['source']}",
    "resources": lambda shape: counted(len(shape["definition"]), "character"),
    "ttl": lambda shape: f"kept for {shape['ttl_ms']} ms",
    "users": of_subject,
    "roles": of_subject,
}


def time_of(at_ms: int) -> str:
    """In UTC."""
    return f"{datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def procedure_row(view: Shape) -> tuple[str, ...]:
    return view["id"], view["kind"], view["state"], time_of(view["steps"][-1]["at_ms"]), waits_for(view)


def waits_for(view: Shape) -> str:
    """The nodes for which the procedure waits; empty if it does not wait."""
    waiting = view["waiting"]
    if waiting is None:
        return ""
    nodes = ", ".join(waiting["for"]) or "every node"
    return f"{nodes} to have revision {waiting['revision']}"


def procedure_lines(view: Shape) -> list[str]:
    """The request and one line per step."""
    lines = [f"procedure {view['id']}: {view['kind']} {view['state']}"]
    lines += [f"  {name}: {value}" for name, value in view["request"].items()]
    for each in view["steps"]:
        text = f": {each['text']}" if each["text"] else ""
        lines.append(f"  {time_of(each['at_ms'])} {each['node']} revision {each['revision']} {each['step']}{text}")
    if waits_for(view):
        lines.append(f"  waits for {waits_for(view)}")
    return lines


def outcome_line(view: Shape) -> str:
    """The outcome of an operation, on one line."""
    if view["ended"] and view["released"]:
        gone = f", {count(view['destroyed'], 'row')} removed" if view["destroyed"] else ""
        return f"{view['kind']}: done at revision {view['revision']}{gone}"
    why = waits_for(view) or "its turn"
    return f"{view['kind']}: started, {view['state']}; waits for {why}; see palisade catalog procedure {view['id']}"


def none_in(collection: str, below: str) -> str:
    """The note on an empty collection. `below`: the path at and below which objects are listed; empty: all."""
    names = {"ttl": "TTL rule", "template-paths": "path with a template"}
    where = f" at or below {below}" if below else ""
    return f"there is no {names.get(collection, collection.removesuffix('s'))}{where}"
