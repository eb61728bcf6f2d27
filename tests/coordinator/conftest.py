import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # reference_tree, search_runner, tree_builders
