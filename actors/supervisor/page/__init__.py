"""The page that shows a run: files for a browser, served by watch and inlined by report.html."""

from pathlib import Path

PAGE = Path(__file__).parent
