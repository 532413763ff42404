"""Benchmarks: `make bench [ONLY=name]`, one JSON object a line."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # what pytest's pythonpath is for the tests
