"""The guard of a winner: `ModelNew`, the task's `Model` with kernels for what they were judged on.

These files are texts: `composition.py` copies what is below each file's marker line into every
winner (`best.py`), in the order of `GUARD_TEXTS`.  A winner needs torch alone.  In its file the
task's own source comes before the guard, and two values that `composition.py` writes: `_KERNELS`,
the candidate's source, and `_JUDGED`, what it was judged on.

The texts are never imported.  The lines above a marker name what a text uses of the others.
"""
