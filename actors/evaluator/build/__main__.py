"""`python -m actors.evaluator.build FILE`: build one file by hand; see fastbuild/README.md."""

import runpy
import warnings

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch's import
    runpy.run_module("actors.evaluator.fastbuild", run_name="__main__", alter_sys=True)
