"""Verifies a store's file as a whole, beyond the checks of single reads.

A checksum shows that a value is correct, not that one is missing. Thus a file is verified at rest when it is opened:
the structure of all pages (every page reachable once or free, keys in order, counters correct), by the walker that
comes with py-lmdb, and the checksum of every value. This takes about 10 s per GiB (metastore/DESIGN.md): small files
are verified at once, larger ones by a child process while the node works; until that has succeeded, nothing is written
to the file.

The newer one of LMDB's two meta pages is determined by a transaction number without checksum: a flipped bit in it would
silently restore an older state. The two numbers are always consecutive, and this is checked as well. A flip of the
second-lowest bit keeps them consecutive in half of the cases, and is not detected. The log then contains the entries
that the older state lacks, or the group refuses to start on that state.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from palisade.base.code_root import CODE_ROOT
from palisade.base.lmdb_env import problem_of
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.lmdb_file import LmdbFile
from palisade.metastore.ordered_map import Table
from palisade.metastore.record_check import REMEDY
from palisade.metastore.store_errors import StoreFailed

VERIFIED_AT_ONCE_BYTES = 64 * 1024 * 1024


def check_structure(directory: Path) -> None:
    """Raises StoreCorrupt. LMDB does not open the file. The file must be at rest."""
    problem = problem_of(directory)
    if problem is not None:
        raise StoreCorrupt(f"the store in {directory} is damaged: {problem}. {REMEDY}")


def check_values(file: LmdbFile) -> None:
    """Raises StoreCorrupt unless every value matches its checksum, and a look-up of its key finds it.

    A scan follows the leaves; a look-up follows the separators of the branches, which have no checksum.
    """
    for table in Table:
        finds = file.finder(table)
        for key, _ in file.stored_items(file.reader, table, b"", None):
            if not finds(key):
                raise StoreCorrupt(
                    f"key {key[:64]!r} in table {table.name} of {file.directory} can't be found. {REMEDY}"
                )


def check_at_rest(directory: Path) -> None:
    """Both checks, of a file that no process uses. Raises StoreCorrupt, StoreFailed."""
    check_structure(directory)
    file = LmdbFile(directory, read_only=True)
    try:
        check_values(file)
    finally:
        file.close()


class Verification:
    """A child process that verifies the file in `directory`, which must be at rest until `outcome` returns True."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        path = os.pathsep.join(filter(None, (str(CODE_ROOT), os.environ.get("PYTHONPATH"))))
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-m", "palisade.metastore.file_verification", str(directory)],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def outcome(self) -> bool:
        """False while it runs. Raises StoreCorrupt if the file is damaged, StoreFailed if it could not be verified."""
        process = self._process
        if process is None:
            return True
        if process.poll() is None:
            return False
        said = process.communicate()[0].decode(errors="replace").strip()
        if process.returncode == 0:
            self._process = None
            return True
        if process.returncode == 1:
            raise StoreCorrupt(said)
        raise StoreFailed(
            f"the store in {self._directory} could not be verified (exit {process.returncode}): {said[-500:]}. "
            "Restart the node"
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main(arguments: list[str]) -> int:
    """Exit 0: sound; 1: damaged, with the fault on stdout."""
    try:
        check_at_rest(Path(arguments[0]))
    except StoreCorrupt as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
