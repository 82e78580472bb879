"""`python -m palisade.cli.scenarios.staged_copy --role orders ...`: one copy of a journal that ends with the scenario.

It takes the options of `palisade journal serve`, and those that `cli.supervisor.child` gives to every process:
`--data-dir` for `--dir`, and `--parent-pipe`.
"""

from __future__ import annotations

import sys

from palisade.cli.main import main
from palisade.node.parent_pipe import watch_parent


def taken(arguments: list[str], option: str) -> str | None:
    """Removes an option from the arguments and returns its value; None if it is missing."""
    if option not in arguments:
        return None
    at = arguments.index(option)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value


if __name__ == "__main__":
    given = sys.argv[1:]
    pipe = taken(given, "--parent-pipe")
    if pipe is not None:
        watch_parent(int(pipe))
    folder = taken(given, "--data-dir")
    sys.argv = ["palisade", "journal", "serve", "--dir", str(folder), *given]
    main()
