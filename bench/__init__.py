"""The asv suite: us against our past. Against others: competitors/. How to run it: README.md."""

import os
import sys
from pathlib import Path

# asv makes this folder known, not the root; last, so that the installed fastcos is the one measured
sys.path.append(str(Path(__file__).parents[1]))

# asv installs one commit after another into one environment: compiled code must not outlive any
if "ASV_COMMIT" in os.environ:
    _caches = Path(os.environ["ASV_ENV_DIR"], "fastcos-cache")
    os.environ["FASTCOS_CACHE_DIR"] = str(_caches / os.environ["ASV_COMMIT"])
