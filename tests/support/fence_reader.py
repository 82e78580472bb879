"""A separate process that reads one key from the vault of a node, through the fence, until it is stopped.

python tests/support/fence_reader.py <vault> <key> <file>

Each line of the file is a read: began, ended (CLOCK_BOOTTIME), and the number in the key, or a word for a refusal.
Consecutive equal refusals are one line with the time of the first and the last of them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from palisade.vault.errors import Fenced, Pending, VaultError
from palisade.vault.reader import VaultReader

PAUSE_S = 0.002
"""Without it a reader takes a core, and shows no more: what is old is shown for longer."""
NOTHING = 0


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(vault: str, key: str, file: str) -> None:
    reader: VaultReader | None = None
    with Path(file).open("w", encoding="ascii", buffering=1) as out:
        while True:
            began = now()
            try:
                if reader is None:
                    reader = VaultReader(Path(vault), wait_s=0.0)
                value = reader.get(key.encode())
                said = str(int(value)) if value is not None else str(NOTHING)
            except Fenced:
                said = "fenced"
            except Pending:
                said = "pending"
            except VaultError as error:
                said = f"error-{type(error).__name__}"
            out.write(f"{began:.6f} {now():.6f} {said}\n")
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
