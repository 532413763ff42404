"""What a process of the control plane must not load."""

import subprocess
import sys
from pathlib import Path

ROOMS = Path(__file__).resolve().parents[1]

IMPORT_EVERYTHING = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
loaded = {"tensorflow", "keras", "horovod"} & set(sys.modules)
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""


def test_the_control_plane_loads_neither_tensorflow_nor_horovod() -> None:
    modules = [
        f"{room}.{path.stem}"
        for room in ("flows", "infra", "monitoring")
        for path in sorted((ROOMS / room).glob("*.py"))
        if path.stem not in {"__init__", "pyfunc_model"}  # runs inside MLflow only
    ]
    assert "flows.loop" in modules
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT_EVERYTHING, *modules],
        cwd=ROOMS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
