"""A process that serves a vault and writes to it continuously, for readers in other processes.

python -m tests.support.fenced_node VAULT RR LEASE_MS

One strict key counts up: revision n has the value n. Each revision is staged, then released: RR is first written to the
file RR, 8 bytes, as the other nodes may know it, and then to the fence page. After a restart it continues. SIGTERM
stops it cleanly.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from palisade.metastore.requests import Put
from palisade.vault.fence_file import clock_ns
from palisade.vault.opening import open_vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, staged_of

KEY = b"palisade/counter"
PAUSE_S = 0.0005


def write_next(driver: Driver) -> int:
    driver.do(Put(KEY, b"%d" % (driver.store.revision + 1)))
    return driver.store.revision


def main(folder: Path, rr: Path, lease_ms: int) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    vault, driver = open_vault(folder), full([])
    known = int.from_bytes(rr.read_bytes(), "big")
    while driver.store.revision < max(vault.revision, known, 2):
        write_next(driver)
    if vault.page is None:
        sys.exit("a vault without a page")
    follow(vault, driver)
    with rr.open("r+b", buffering=0) as shared:

        def release(revision: int) -> None:
            shared.seek(0)
            shared.write(revision.to_bytes(8, "big"))
            vault.staging.release(revision)

        vault.staging.stage([], anew=True)
        release(driver.store.revision)
        vault.page.serve(clock_ns() + lease_ms * 1_000_000, 1)
        print("serving", flush=True)
        while not stopped:
            vault.page.serve(clock_ns() + lease_ms * 1_000_000, 1)
            for _ in range(20):
                revision = write_next(driver)
                vault.staging.stage(staged_of(driver, revision))
                time.sleep(PAUSE_S)
                release(revision)
                if revision % 3 == 0:
                    follow(vault, driver)
    vault.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
