"""`python -m actors.evaluator.build FILE`: build one file by hand; see fastbuild/README.md."""

import sys

from actors.evaluator.fastbuild.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
