"""`python scripts/report.py RUN`: write RUN/report.html again, also while the run goes on."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Write the report and say where it is; 2 when the folder holds no run."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.commands import as_typed, typed
    from actors.supervisor import intact, report
    from actors.usage import Parser, end_with_reader

    parser = Parser(prog=typed("report"), description=as_typed(__doc__))
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    run = parser.parse_args(arguments).run
    end_with_reader()
    try:
        intact.of_reader(run)
        print(report.write(run))
    except OSError as error:
        print(f"can't write the report of {run}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, sqlite3.DatabaseError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
