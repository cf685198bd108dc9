"""Benchmarks, runnable by one command each; README.md says what they can and cannot show."""

import os

# As in the lab's processes: several threads of BLAS wait for each other longer than small matrices take, and where
# searches run side by side they use up the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
