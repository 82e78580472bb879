"""The command `palisade`, also `python -m palisade.cli`. Ctrl-C while it loads ends it without a traceback."""

import sys


def main() -> None:
    try:
        from palisade.cli.main import main as command
        from palisade.cli.output import guard

        guard()
    except KeyboardInterrupt:
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
