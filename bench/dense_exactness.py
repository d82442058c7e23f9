"""A link to the new place: `python -m tests.robustness.dense_exactness [CASES [SEED]]`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.robustness.dense_exactness", run_name="__main__")
