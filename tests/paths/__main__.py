"""`scripts/paths`: prints how many functions and files one request enters in each node, or which."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from itertools import groupby

from tests.paths.journeys import JOURNEYS
from tests.paths.limits import LIMITS, Most
from tests.paths.measure import NodePath, Paths, measured_each
from tests.paths.trace import RequestPath

SETTINGS = {"off": (False,), "on": (True,), "both": (False, True)}
NAMES = {False: "off", True: "on"}
HEAD = f"""\
{"":35}   to the answer                           until its effects end
{"journey":13} {"node":8} {"authorization":13}   files functions (with shared)      goal   files functions"""
FOOT = """\
files, functions: those that an idle node does not enter. A node that is not asked has no answer."""


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/paths", description="Count the files and functions that one request enters, by tracing a cluster."
    )
    parser.add_argument("--authorization", choices=SETTINGS, help="default: both; with --list: off")
    parser.add_argument(
        "--list",
        metavar="JOURNEY",
        choices=[each.name for each in JOURNEYS],
        help="print the functions of one journey, file by file in order of first entry: %(choices)s",
    )
    parser.add_argument(
        "--role", choices=("leader", "follower"), help="with --list: this node (default: the one asked)"
    )
    parser.add_argument("--effects", action="store_true", help="with --list: until the effects of the request end")
    parser.add_argument("--shared", action="store_true", help="with --list: also what an idle node enters")
    parser.add_argument("--json", action="store_true", help="counts and functions of all journeys as JSON")
    return parser.parse_args(arguments)


def table(found: dict[bool, Paths]) -> list[str]:
    goals = {(each.journey, each.role): each.goal for each in LIMITS}
    lines = HEAD.splitlines()
    for journey in JOURNEYS:
        for role in journey.roles:
            for setting, paths in found.items():
                shown = row(paths[journey.name, role], goals.get((journey.name, role)))
                lines.append(f"{journey.name:13} {role:8} {NAMES[setting]:13}   {shown}")
    return [*lines, "", *(f"{each.name:13} {each.text}" for each in JOURNEYS), "", *FOOT.splitlines()]


def row(path: NodePath, goal: Most | None) -> str:
    asked, end = path.to_answer, path.to_end
    shown = f"{len(end.own_files):7} {len(end.own):9}"
    if asked is None:
        return f"{'':41}{shown}"
    wanted = "" if goal is None else f"{goal.files}" if goal.functions is None else f"{goal.files} {goal.functions}"
    all_ = f"{len(asked.files):7} {len(asked.functions):5}"
    return f"{len(asked.own_files):5} {len(asked.own):9} {all_} {wanted:>10} {shown}"


def listed(path: RequestPath, *, shared: bool) -> list[str]:
    """Each visit of a file, in order of first entry. `~`: an idle node enters it, too."""
    shown = [each for each in path.functions if shared or each in path.own]
    lines = []
    for file, functions in groupby(shown, key=lambda each: each.file):
        lines.append(f"  {file}")
        lines += [f"      {' ' if each in path.own else '~'} {each.name}:{each.line}" for each in functions]
    if path.sometimes:
        lines.append("  not counted, since not every request entered it:")
        lines += [f"        {each.file} {each.name}:{each.line}" for each in sorted(path.sometimes)]
    return lines


def lists(found: dict[bool, Paths], asked: argparse.Namespace) -> list[str]:
    journey = next(each for each in JOURNEYS if each.name == asked.list)
    role = asked.role or journey.roles[0]
    if role not in journey.roles:
        sys.exit(f"scripts/paths: {journey.name} is traced at: {', '.join(journey.roles)}")
    lines = []
    for setting, paths in found.items():
        found_path = paths[journey.name, role]
        path = found_path.to_end if asked.effects else found_path.main
        lines.append(f"{journey.text}: {role}, authorization {NAMES[setting]}: {path.counts()}")
        lines += listed(path, shared=asked.shared)
    return lines


def as_json(found: dict[bool, Paths]) -> str:
    rows = []
    for setting, paths in found.items():
        for (journey, role), both in paths.items():
            for phase, path in (("to_answer", both.to_answer), ("to_end", both.to_end)):
                if path is not None:
                    named = {"journey": journey, "role": role, "authorization": NAMES[setting], "phase": phase}
                    rows.append({**named, **path.counts(), "path": path.as_rows()})
    return json.dumps(rows)


def main(arguments: list[str]) -> None:
    asked = parsed(arguments)
    setting = asked.authorization or ("off" if asked.list else "both")
    journeys = [each for each in JOURNEYS if asked.list in (None, each.name)]
    found = asyncio.run(measured_each(SETTINGS[setting], journeys))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it quietly
    if asked.json:
        print(as_json(found))
    else:
        print("\n".join(lists(found, asked) if asked.list else table(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
