"""`python -m actors.evaluator.build FILE`: build one file by hand; see fastbuild/README.md."""

import runpy

if __name__ == "__main__":
    runpy.run_module("actors.evaluator.fastbuild", run_name="__main__", alter_sys=True)
