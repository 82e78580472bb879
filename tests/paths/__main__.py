"""`scripts/paths`: prints how many functions and files one request enters in each node, or which."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from itertools import groupby

from tests.paths.journeys import JOURNEYS
from tests.paths.measure import Paths, measured_both
from tests.paths.trace import RequestPath

SETTINGS = {"off": (False,), "on": (True,), "both": (False, True)}
NAMES = {False: "off", True: "on"}
COLUMNS = ("files", "functions", "files_shared", "functions_shared")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/paths", description="Count the files and functions that one request enters, by tracing a cluster."
    )
    parser.add_argument("--authorization", choices=SETTINGS, help="default: both; with --list: off")
    parser.add_argument("--list", metavar="JOURNEY", choices=[each.name for each in JOURNEYS], help="%(choices)s")
    parser.add_argument("--role", choices=("leader", "follower"), help="with --list: this node only")
    parser.add_argument("--shared", action="store_true", help="with --list: also what an idle node enters")
    parser.add_argument("--json", action="store_true", help="the counts, the functions and the files as JSON")
    return parser.parse_args(arguments)


def table(found: dict[bool, Paths]) -> list[str]:
    lines = [f"{'journey':14} {'node':9} {'authorization':13} {'files':>6} {'functions':>9} {'with shared':>14}"]
    for journey in JOURNEYS:
        for role in journey.roles:
            for setting, paths in found.items():
                counts = paths[journey.name, role].counts()
                files, functions, files_shared, functions_shared = (counts[column] for column in COLUMNS)
                lines.append(
                    f"{journey.name:14} {role:9} {NAMES[setting]:13} {files:6} {functions:9} "
                    f"{files_shared:6} {functions_shared:7}"
                )
    return [*lines, "", *(f"{journey.name}: {journey.text}" for journey in JOURNEYS)]


def listed(path: RequestPath, *, shared: bool) -> list[str]:
    """Each visit of a file, in order of first entry. `+`: only this request enters the function or file."""
    shown = [each for each in path.functions if shared or each in path.own]
    lines = []
    for file, functions in groupby(shown, key=lambda each: each.file):
        lines.append(f"{'+' if file in path.own_files else ' '} {file}")
        lines += [f"      {'+' if each in path.own else ' '} {each.name}:{each.line}" for each in functions]
    if path.sometimes:
        lines.append("not counted, since most windows did not enter it:")
        lines += [f"      {each.file} {each.name}:{each.line}" for each in sorted(path.sometimes)]
    return lines


def as_json(found: dict[bool, Paths]) -> str:
    rows = [
        {"journey": journey, "role": role, "authorization": NAMES[setting], **path.counts(), "path": path.as_rows()}
        for setting, paths in found.items()
        for (journey, role), path in paths.items()
    ]
    return json.dumps(rows)


def lists(found: dict[bool, Paths], asked: argparse.Namespace) -> list[str]:
    lines = []
    for setting, paths in found.items():
        for (journey, role), path in paths.items():
            if journey == asked.list and asked.role in (None, role):
                counts = path.counts()
                lines.append(f"== {journey}, {role}, authorization {NAMES[setting]}: {counts}")
                lines += listed(path, shared=asked.shared)
    return lines


def main(arguments: list[str]) -> None:
    asked = parsed(arguments)
    setting = asked.authorization or ("off" if asked.list else "both")
    found = asyncio.run(measured_both(SETTINGS[setting]))
    if asked.json:
        print(as_json(found))
    else:
        print("\n".join(lists(found, asked) if asked.list else table(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
