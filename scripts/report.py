"""`python scripts/report.py RUN`: write RUN/report.html again, also while the run goes on."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Write the report and print its path; return 2 when the folder does not hold a run."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.cli import OneLineParser, exit_when_reader_closes
    from actors.commands import typed_command, with_typed_commands
    from actors.exit_status import ExitStatus
    from actors.supervisor.reporting.report import html_report
    from actors.supervisor.reporting.run_data import run_folder_integrity

    parser = OneLineParser(prog=typed_command("report"), description=with_typed_commands(__doc__))
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    run = parser.parse_args(arguments).run
    exit_when_reader_closes()
    try:
        run_folder_integrity.check_readable(run)
        print(html_report.write_report(run))
    except OSError as error:
        print(f"can't write the report of {run}: {error.strerror}", file=sys.stderr)
        return ExitStatus.USAGE
    except (ValueError, sqlite3.DatabaseError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return ExitStatus.USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
