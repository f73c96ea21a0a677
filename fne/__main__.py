"""`python -m fne` is the `fne` command, of the code in this folder."""

from fne.cli import main

if __name__ == "__main__":
    main()
