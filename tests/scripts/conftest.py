import sys
from pathlib import Path

# table_samples is here; supervisor_sample (a run.db as a coordinator leaves it) is there
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "supervisor")]
