"""The example of docs/embedded-reader.md behaves as documented, on a vault that another process serves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_documented_example_reads_a_served_vault_and_reports_unknown(tmp_path: Path) -> None:
    found = EXAMPLE.search((ROOT / "docs" / "embedded-reader.md").read_text(encoding="utf-8"))
    assert found is not None
    vault, rr = tmp_path / "vault", tmp_path / "rr"
    rr.write_bytes(bytes(8))
    node = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fenced_node", vault, rr, "30000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert node.stdout is not None
    try:
        assert node.stdout.readline() == "serving\n"
        said = run(found[1], vault, "palisade/counter", "nothing")
        assert re.search(r"palisade/counter: \d+\nnothing: no such key\n1 keys below palisade/ at revision \d+", said)
    finally:
        node.terminate()
        node.wait(30)
        node.stdout.close()


def run(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
