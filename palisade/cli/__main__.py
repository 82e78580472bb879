"""`python -m palisade.cli`: the same as the command `palisade`."""

from palisade.cli.main import main

if __name__ == "__main__":
    main()
