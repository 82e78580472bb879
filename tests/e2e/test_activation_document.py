"""The commands and programs of docs/activation.md as typed, on real processes (issue 17, "Shown by")."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from palisade.catalog.forced_activation import AUDIT_FILE
from palisade.cli.activation_copies import read_directory
from tests.e2e.test_documents import Typed, blocks_of, fits, typed_in
from tests.support.journal_processes import ROLE, Pair, running_pair
from tests.support.processes import LONGEST_WAIT_S, Cluster, palisade, until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "activation.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return DOCUMENT.split(f"## {title}")[1].split("\n## ")[0]


def commands_of(title: str) -> list[Typed]:
    return [each for block in blocks_of(section(title), "console") for each in typed_in(block)]


@pytest.fixture
async def pair(new_cluster: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(new_cluster(1), tmp_path) as pair:
        yield pair


def here(text: str, pair: Pair) -> str:
    """With the directories and addresses of this test."""
    text = re.sub(r"(copy|in|of) a\b", lambda found: f"{found[1]} {pair.a.directory}", text)
    text = re.sub(r"--dir ([ab])\b", lambda found: f"--dir {pair.a.directory.parent / found[1]}", text)
    return text.replace("127.0.0.1:7901", pair.a.address).replace("127.0.0.1:7902", pair.b.address)


async def type_(each: Typed, pair: Pair) -> None:
    """It must succeed, and print what the document has, except for numbers."""
    code, out, err = await palisade(*words(each, pair), environment=environment(pair))
    assert code == 0, err
    check_output(each, pair, err + out)


def words(each: Typed, pair: Pair) -> list[str]:
    return shlex.split(here(each.command, pair))[1:]


def environment(pair: Pair) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PALISADE_ENDPOINTS": ",".join(pair.cluster.endpoints)}


def check_output(each: Typed, pair: Pair, got: str) -> None:
    expected = [here(line, pair) for line in each.output]
    assert not expected or fits(expected, got.splitlines()), f"{got}\nthe document has:\n" + "\n".join(expected)


async def answer(each: Typed, pair: Pair) -> None:
    """As `type_`, in a terminal, with the answer that the document has."""
    terminal, process_end = pty.openpty()
    try:
        os.write(terminal, b"y\n")
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "palisade.cli", *words(each, pair)],
            stdin=process_end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(pair), timeout=LONGEST_WAIT_S,
        )  # fmt: skip
    finally:
        os.close(terminal)
        os.close(process_end)
    assert done.returncode == 0, done.stdout
    check_output(each, pair, done.stdout.replace("[y/N]: ", "[y/N]: y\n"))


def printed_by(program: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    return out.getvalue()


async def test_appends_and_reads_work_as_typed(pair: Pair) -> None:
    for each in commands_of("Append and read"):
        await type_(each, pair)
    code, out, err = await pair.command("read", "--json", "--from=2")
    assert code == 0, err
    assert json.loads(out) == {"number": 2, "content": "order 2"}

    asynchronous, blocking = (here(program, pair) for program in blocks_of(section("Append and read"), "python"))
    body = textwrap.indent(asynchronous, "    ")
    program = f"import asyncio\n\nasync def main():\n{body}\nasyncio.run(main())\n"
    first_three = "1 b'order 1'\n2 b'order 2'\n3 b'order 3'\n"
    assert await asyncio.to_thread(printed_by, program) == first_three
    assert await asyncio.to_thread(printed_by, f"import palisade\n{blocking}") == "4 b'order 4'\n5 b'order 5'\n"


async def test_pair_starts_as_typed(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """And the backup returns the role to the primary, as the document states for `--allow-failback`."""
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    pair = Pair(cluster, tmp_path)
    for copy, each in zip((pair.a, pair.b), commands_of("Start a pair"), strict=True):
        copy.arguments = [*words(each, pair), pair.endpoints]
        copy.start()
    await pair.reach("active", "in sync")
    pair.a.kill()
    await until(lambda: appended(pair, "while a is down"), "an entry acknowledged by b")
    pair.a.start()
    await pair.reach("active", "in sync")
    pair.kill()


async def test_copies_are_compared_and_forced_as_typed(pair: Pair) -> None:
    """With and without the metadata store; a running and a stopped copy are recorded when it is back."""
    listed, shown, force, alone, reconcile = commands_of("Inspect and force")
    await type_(listed, pair)
    await type_(shown, pair)
    await refused(force, pair, "stop 'palisade journal serve' first")

    pair.kill()
    await until(lambda: lock_is_free(pair), "the lock to be free")
    before = sequence_of(pair)
    await answer(force, pair)
    assert sequence_of(pair) > before
    await refused(alone, pair, "the metadata store answers")

    audit = pair.a.directory / AUDIT_FILE
    pair.cluster.kill()
    await answer(alone, pair)
    assert audit.exists()
    alone_at = sequence_of(pair)
    pair.a.start()
    await until(lambda: appended(pair, "alone"), "an entry acknowledged without the store")
    pair.cluster.start()
    await until(lambda: not audit.exists(), "the forced activation being recorded")
    await until(lambda: serves_with_the_lock(pair, alone_at), "the copy serving with the lock")

    pair.a.kill()
    pair.cluster.kill()
    await answer(alone, pair)
    pair.cluster.start()
    await pair.cluster.ready()
    await until(lambda: lock_is_free(pair), "the lock to be free")
    await type_(reconcile, pair)
    assert not audit.exists()
    pair.a.start()
    pair.b.start()
    await pair.reach("active", "in sync")
    code, out, err = await palisade("activation", "show", ROLE, "--json", pair.endpoints)
    assert code == 0, err
    assert [each["agreed"] is None for each in json.loads(out)["forced"]] == [False, True, True]


async def refused(each: Typed, pair: Pair, reason: str) -> None:
    code, _, err = await palisade(*words(each, pair), "--yes", environment=environment(pair))
    assert (code, reason in err) == (1, True), err


def sequence_of(pair: Pair) -> int:
    local = read_directory(ROLE, pair.a.directory).local
    assert local is not None
    return local.sequence


async def serves_with_the_lock(pair: Pair, alone_at: int) -> bool:
    """Whether a has committed its next sequence. If it died after its claim, the next forced activation would have the
    sequence of that claim, and be refused: the claim could be that of another copy."""
    a = (await pair.status())[0]
    return (a["state"], a.get("agreed_state"), a.get("agreed_sequence")) == ("active", "committed", alone_at + 1)


async def lock_is_free(pair: Pair) -> bool:
    _, out, _ = await palisade("activation", "show", ROLE, "--json", pair.endpoints)
    return json.loads(out)["holder"] is None


async def appended(pair: Pair, entry: str) -> bool:
    return (await pair.command("append", entry))[0] == 0
