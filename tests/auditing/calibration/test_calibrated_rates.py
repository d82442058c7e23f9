"""Tests of the script calibrated_rates.py.

The script compares promised rates with observed rates. It must run without an error, and print the
observed rates.
"""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_fdr_prints_both_levels():
    command = [sys.executable, "-m", "tests.robustness.calibrated_rates", "fdr", "--repeats", "1"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[3], check=True, stdout=subprocess.PIPE, text=True
    )
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["FDR 0.05", "FDR 0.2"]
