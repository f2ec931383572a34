"""Run the command line: `python -m anytime`, also under torchrun."""

from anytime.cli import main

if __name__ == "__main__":
    main()
