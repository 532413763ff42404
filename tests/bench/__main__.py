"""`python -m tests.bench [NAME]`: run all benchmarks, or one."""

import importlib
import sys

BENCHMARKS = {
    "quality": "tests.bench.quality:main",
    "delay": "tests.bench.delay:main",
    "guard": "tests.bench.guard:main",
    "false-alarms": "tests.bench.false_alarms:main",
    "power": "tests.bench.power:main",
    "drift": "tests.bench.drift:main",
    "memory": "tests.bench.memory:main",
    "training-memory": "tests.bench.training_memory:main",
    "training": "tests.bench.training:main",
    "startup": "tests.bench.startup:main",
    "scoring": "tests.bench.scoring:main",
    "serving": "tests.bench.serving:main",
    "soak": "tests.bench.soak:main",
}


def main(only: str | None) -> int:
    """Run the benchmarks; an unknown name is an error."""
    if only is not None and only not in BENCHMARKS:
        sys.stderr.write(f"there is no benchmark {only!r}; there are {', '.join(BENCHMARKS)}\n")
        return 2
    for name, place in BENCHMARKS.items():
        if only in (None, name):
            module, function = place.split(":")
            getattr(importlib.import_module(module), function)()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
