"""The commands of README and docs (tutorial, operations, fencing, locks), typed as printed.

Numbers and ids of the output may differ from the document, everything else may not. A line `...` stands for any lines.
A command without output in the document may have any, and must succeed.

Not typed here: the Spark commands of README and pipeline.md (`tests/pipeline` runs the jobs, and the programs that read
tables), segments (`test_segments_document.py`), and the start of single nodes, by `test_membership.py` and
`test_followers.py`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.test_up import WAIT_S, Up, base_port, up

pytestmark = pytest.mark.e2e

__all__ = ["base_port", "up"]

ROOT = Path(__file__).parents[2]
PORTS_OF_DOCUMENTS = 7400
SLOW = ("palisade: waiting: ", "palisade: restoring: ")
"""Commands print such lines on a busy machine."""
AIRLINE = '{"carrier":"UA","name":"United Air Lines Inc."}'


class Typed(NamedTuple):
    command: str
    output: list[str]


def blocks_of(document: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)


def typed_in(block: str) -> Iterator[Typed]:
    """The commands of one block. A here-document belongs to its command."""
    command, output, here = "", list[str](), False
    for line in block.splitlines():
        if here:
            command, here = f"{command}\n{line}", line != "END"
        elif line.startswith("$ "):
            if command:
                yield Typed(command, output)
            command, output, here = line[2:], [], line.endswith("<<'END'")
        else:
            output.append(line)
    if command:
        yield Typed(command, output)


def without_numbers(line: str) -> str:
    line = re.sub(r"^n\d is active", "N is active", line)
    line = re.sub(r"\b[0-9a-f]*\d[0-9a-f]*\b", "N", line.strip())
    return re.sub(r"N([,.]N)+", "N", line)


def fits(expected: list[str], got: list[str]) -> bool:
    lines = [".*" if line.strip() == "..." else re.escape(without_numbers(line)) for line in expected]
    lines = [line.replace(re.escape("..."), ".*") for line in lines]
    return re.fullmatch("\n".join(lines), "\n".join(map(without_numbers, got)), re.DOTALL) is not None


class Terminal:
    """A terminal in `folder`, beside the cluster of `run`."""

    def __init__(self, folder: Path, run: Up, first_port: int) -> None:
        self._folder, self._run, self._first_port = folder, run, first_port
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        self._revisions: dict[str, str] = {}
        """Of the document -> of this cluster."""
        self.exit_code = 0
        """Of the last command."""

    def local(self, text: str) -> str:
        """With the ports and revisions of this cluster, and its leader as the process to be killed."""
        text = re.sub(r"(--revision |compact )(\d+)", lambda at: at[1] + self._revisions.get(at[2], at[2]), text)
        text = text.replace("curl ", "curl -s ")
        text = text.replace("--base-port 8400", f"--base-port {self._first_port + 10}")
        text = re.sub(r"^palisade restore (?!.*--base-port).*", rf"\g<0> --base-port {self._first_port}", text)
        text = re.sub(r"(127\.0\.0\.1:)7(\d{3})", lambda at: f"{at[1]}{self._first_port + int(at[2]) - 400}", text)
        if "kill -9" in text:
            nodes = self.status()
            leader = next(node["id"] for node in nodes if node["role"] == "leader")
            other = next(node["id"] for node in nodes if node["role"] == "follower")
            pid = [event["pid"] for event in self._run.events if event.get("pid") and event["node"] == leader][-1]
            text = re.sub(r"kill -9 \d+", f"kill -9 {pid}", re.sub(r"palisade/n\d/", f"palisade/{other}/", text))
            text = re.sub(r"sleep \d", "sleep 0.5", text) + ("" if text.endswith("wait") else "; wait")
        return text

    def shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        self.exit_code = done.returncode
        return done.stdout + "".join(line for line in done.stderr.splitlines(True) if not line.startswith(SLOW))

    def program(self, text: str) -> list[str]:
        """The output of a program of the document."""
        (self._folder / "program.py").write_text(self.local(text))
        return self.shell("python program.py").splitlines()

    def type(self, each: Typed) -> None:
        """Raises AssertionError unless the output is that of the document."""
        command = self.local(each.command)
        variable = re.match(r"(\w+)=\$\(", command)
        got = self.shell(f"{command}; echo ${variable[1]}" if variable else command).splitlines()
        if not each.output and not variable:
            assert self.exit_code == 0, "\n".join([f"$ {command}", *got])
            return
        if variable:
            self._environment[variable[1]] = got.pop()
        expected = [self.local(line) for line in each.output]
        refused = any(line.startswith("palisade: ") for line in got) and "palisade: " not in "\n".join(expected)
        both = "\n".join([f"$ {command}", *got, "the document has:", *expected])
        assert not refused, both
        assert fits(expected, got), both
        for line, other in zip(expected, got, strict=False):
            if (document := re.search(r"revision (\d+)", line)) and (here := re.search(r"revision (\d+)", other)):
                self._revisions[document[1]] = here[1]

    def type_all(self, document: str) -> None:
        for block in blocks_of(document, "console"):
            for each in typed_in(block):
                self.type(each)
                if "kill -9" in each.command:
                    self.wait_until_restarted()

    def reads_while_a_strict_write_waits(self) -> None:
        """The README's program ended with a traceback (`Pending`) if the write was typed while it ran (issue 16).
        The leader is killed once the program has shown the value before."""
        reads = "python -u local_read.py .palisade/n2/data/vault > shown & until [ -s shown ]; do sleep .1; done"
        write = "kill -9 1; palisade put /config/mode slower --timeout 20; wait; cat shown"
        got = self.shell(self.local(f"{reads}; {write}")).splitlines()
        shown = [line.split()[-1] for line in got if re.match(r" ?\d+\.\d\d s  ", line)]
        assert shown[-1] == "slower", "\n".join(got)
        assert len(shown) == 2, "\n".join(got)
        self.wait_until_restarted()

    def wait_until_restarted(self) -> None:
        node = self._run.wait("node-exited")["node"]
        self._run.wait("node-started", node=node)
        while not all(row["ready"] and row["fence"] == "active" for row in self.status()):
            time.sleep(0.1)

    def status(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.shell("palisade status --json"))["nodes"]
        return rows


def test_lines_fit_if_only_numbers_differ() -> None:
    assert fits(["revision 2", "..."], ["revision 14", "x", "y"])
    assert fits(["74,368 reads in 6 s"], ["1 reads in 2 s"])
    assert not fits(["revision 2"], ["palisade: refused"])
    assert not fits(["revision 2"], ["revision 2", "more"])


def started(up: Callable[..., Up], folder: Path, base_port: int) -> tuple[Up, Terminal]:
    run = up("--no-demo", "--base-port", str(base_port), folder=folder / ".palisade")
    run.wait("ready")
    return run, Terminal(folder, run, base_port)


def test_tutorial_can_be_typed(tmp_path: Path, up: Callable[..., Up], base_port: int) -> None:
    run, terminal = started(up, tmp_path, base_port)
    tutorial = (ROOT / "docs" / "tutorial.md").read_text().replace("monotonic() + 6", "monotonic() + 2")
    parts = {part[0]: part for part in tutorial.split("\n## ")}
    for number in "2345":
        terminal.type_all(parts[number])
    (program,) = blocks_of(parts["6"], "python")
    assert terminal.program(program) == ["turbo", "['/workers/w1']", "after the lease: None"]

    backup, removed, restored, begun = [each for block in blocks_of(parts["7"], "console") for each in typed_in(block)]
    terminal.type(backup)
    terminal.type(removed)
    assert run.stop() == 0
    terminal.type(restored)
    copy = up(*begun.command.removeprefix("palisade up --data-dir copy").split(), folder=tmp_path / "copy")
    copy.wait("ready")
    assert terminal.shell("palisade get /config/mode") == "turbo"
    assert copy.stop() == 0


def test_readme_operations_and_loss_of_a_majority_can_be_typed(
    tmp_path: Path, up: Callable[..., Up], base_port: int
) -> None:
    run, terminal = started(up, tmp_path, base_port)
    terminal.shell(f"palisade put /catalog/airlines/UA '{AIRLINE}'")
    readme = (ROOT / "README.md").read_text().partition("## Try it")[2].partition("### Python")[0]
    program = blocks_of(readme, "python")[0]
    (tmp_path / "local_read.py").write_text(program.replace("began + 10", "began + 2"))
    terminal.type_all(readme)
    (tmp_path / "local_read.py").write_text(program.replace("began + 10", 'began + 60 and shown != b"slower"'))
    terminal.reads_while_a_strict_write_waits()
    operations = (ROOT / "docs" / "operations.md").read_text().replace("-dir n1/data", "-dir .palisade/n1/data")
    operations, _, section = operations.partition("## Permanent loss of a majority")
    terminal.type_all(operations)
    assert run.stop() == 0

    cluster = run.events[0]["cluster"]
    shown, confirmed = typed_in(blocks_of(section.replace("--confirm c1", f"--confirm {cluster}"), "console")[0])
    terminal.type(shown)
    assert "palisade: " not in terminal.shell(confirmed.command)
    terminal.type(Typed("palisade recover-quorum --data-dir .palisade/n1/data", ["palisade: ..."]))


def test_pages_about_fencing_and_locks_can_be_typed(tmp_path: Path, up: Callable[..., Up], base_port: int) -> None:
    run, terminal = started(up, tmp_path, base_port)
    terminal.type_all((ROOT / "docs" / "fencing.md").read_text())
    type_locks(terminal, tmp_path)
    type_embedded_reader(terminal, tmp_path)
    type_programs_of_readme(terminal)
    assert run.stop() == 0


def type_embedded_reader(terminal: Terminal, folder: Path) -> None:
    document = (ROOT / "docs" / "embedded-reader.md").read_text()
    (folder / "example.py").write_text(blocks_of(document, "python")[0])
    written, read = typed_in(blocks_of(document, "console")[0].replace(" D/", " .palisade/"))
    terminal.type(written)
    assert fits(
        ["/config/mode: fast", "9 keys below palisade/ at revision 9"], terminal.shell(read.command).splitlines()
    )


def type_programs_of_readme(terminal: Terminal) -> None:
    terminal.shell("palisade put /catalog/planes/N10156 '{}'")
    section = (ROOT / "README.md").read_text().partition("### Python")[2]
    connected, asynchronous, embedded = blocks_of(section.partition("## Features")[0], "python")
    written, elected, planes, change = terminal.program(connected)
    assert (elected, planes) == ("elected", "1 planes, the first is /catalog/planes/N10156")
    assert change == f"{written.removeprefix('written at ')} [b'/config/mode']"
    assert re.fullmatch(r"revision \d+ \[b'\w+'\]", *terminal.program(asynchronous))
    assert terminal.program(embedded) == ["fast at revision 2"]


def type_locks(terminal: Terminal, folder: Path) -> None:
    """The last command runs until Ctrl-C, beside the one before it."""
    work = {"compact.sh": "true", "ingest.sh": "touch leads; until [ -e listed ]; do sleep 0.1; done"}
    for name, line in work.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    document = (ROOT / "docs" / "locks.md").read_text()
    lock, elect, listen = typed_in(blocks_of(document, "console")[0])
    terminal.type(lock)
    listed = f"until [ -e leads ]; do sleep 0.1; done; head -1 < <({listen.command}); touch listed; wait"
    terminal.type(Typed(f"{elect.command} & {listed}", listen.output))


def test_tutorial_shows_what_up_prints(tmp_path: Path, base_port: int) -> None:
    """For people, not as JSON."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    command, expected = next(each for each in typed_in(blocks_of(tutorial, "console")[1]))
    arguments = [sys.executable, "-m", "palisade.cli", *command.split()[1:], "--base-port", str(base_port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        got = []
        for line in run.stdout:
            got.append(line.rstrip("\n"))
            if line.startswith("export "):
                break
        run.send_signal(signal.SIGINT)
        run.stdout.read()
    assert fits(expected, got), "\n".join(got)
