"""The wheel: it installs `palisade/` and nothing else, and works beside modules of a program with any name (issue 15).

The program runs without `site`, so that an editable install of the repository cannot stand in for the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from palisade.base.version import VERSION
from tests.support.threaded_node import ThreadedNode, threaded_node

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
NOT_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
PROGRAM = """
import asyncio
import sys
from importlib import import_module

import palisade

address, folder, fenced = sys.argv[1:]
OWN = ("catalog", "node", "recovery", "vault")
assert [import_module(name).OWN for name in OWN] == list(OWN)


async def main():
    async with palisade.Client(address, follow_leader=False) as client:
        await client.put("a", "of the client")
        found = await client.get("a")
        assert found.value == b"of the client"
    async with palisade.open(folder) as store:
        made = await store.txn([palisade.Compare.absent("a")], [palisade.Put("a", "of the store")])
        assert made.succeeded


with palisade.connect(address, follow_leader=False) as client:
    client.put("a", "of the blocking client")
    try:
        client.put("k" * 5000)
    except palisade.errors.KeyTooLarge:
        print("refused")
asyncio.run(main())
with palisade.open(folder) as store:
    assert store.get("a").value == b"of the store"
with palisade.VaultReader(fenced) as reader:
    print(int(reader.get(b"palisade/counter")))
others = ("catalog", "fencing", "metastore", "node", "raftgroup", "recovery", "vault")
foreign = [name for name in sys.modules if name.split(".")[0] in others]
assert sorted(foreign) == list(OWN), foreign
print(palisade.__file__, palisade.__version__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the wheel of this tree is installed."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "target"))
    shutil.copytree(ROOT, source, symlinks=True, ignore=NOT_SOURCE, dirs_exist_ok=True)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, source], check=True, timeout=300)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", target, wheel], check=True, timeout=300)
    return target


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    with threaded_node() as started:
        yield started


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Path]:
    """A vault that another process serves."""
    path, released = tmp_path / "vault", tmp_path / "rr"
    released.write_bytes(bytes(8))
    command = [sys.executable, "-m", "tests.support.fenced_node", path, released, "30000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            assert serving.stdout.readline() == "serving\n"
            yield path
        finally:
            serving.terminate()


def test_wheel_installs_palisade_and_nothing_else(installed: Path) -> None:
    assert sorted(os.listdir(installed)) == ["bin", "palisade", f"palisade-{VERSION}.dist-info"]
    assert (installed / "palisade/py.typed").is_file()
    for package in ("metastore", "raftgroup", "vault", "recovery", "node", "client"):
        assert (installed / "palisade" / package / "__init__.py").is_file()
    assert not [path for path in installed.rglob("*") if path.is_symlink()]
    assert list(installed.rglob("openapi.json"))


def test_wheel_works_beside_modules_of_a_program_with_any_name(
    installed: Path, node: ThreadedNode, vault: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    (program / "node").mkdir(parents=True)
    for name in ("catalog", "node/__init__", "recovery", "vault"):
        (program / f"{name}.py").write_text(f"OWN = {name.split('/')[0]!r}\n")
    (program / "main.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), sysconfig.get_path("purelib")))}
    command = [sys.executable, "-S", program / "main.py", node.address, tmp_path / "store", vault]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    refused, fenced, where = ended.stdout.splitlines()
    assert (refused, where) == ("refused", f"{installed}/palisade/__init__.py {VERSION}")
    assert int(fenced) > 1
