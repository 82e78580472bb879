"""`python -m node.cli`: the same as the command `palisade`."""

from node.cli.main import main

if __name__ == "__main__":
    main()
