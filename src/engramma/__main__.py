"""python -m engramma: the command line, where its script is not on the path."""

from engramma.cli import main

if __name__ == "__main__":
    main()
