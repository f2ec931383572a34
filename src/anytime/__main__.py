"""`python -m anytime` is the command, for `torchrun -m anytime`."""

from anytime.cli import main

if __name__ == "__main__":
    main()
