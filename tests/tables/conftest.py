import sys
from pathlib import Path

# bench; a run.db as a coordinator leaves it is the supervisor's sample
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "supervisor")]
