"""Does a registered version load where it will serve, and score there as it did where it was trained?

`python -m infra.clean_load MODEL_URI` answers in a fresh process and through MLflow alone:
nothing of Floodmark is imported before the model brings its own copy. The tracking URI may hold a password,
so `clean_load` hands it over in the environment.
"""

import json
import os
import subprocess
import sys
import timeit
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the child must not import them
    from infra.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
TRAINING_LIBRARIES = ("tensorflow", "horovod")
PASSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanLoad:
    """The `evaluate.score_difference` of stored and reproduced scores, or why there is none.

    `microseconds_per_row` is the fastest of a few passes over the check rows, `artifact_bytes` the size of
    the registered model with everything in it; None where it did not load.
    """

    difference: float | None
    error: str | None
    microseconds_per_row: float | None = None
    artifact_bytes: int | None = None


def clean_load(registry: "Registry", version: str, timeout: float = 120.0) -> CleanLoad:
    """Load `version` in a fresh process, for at most `timeout` seconds, and compare its scores.

    Whatever goes wrong is an `error`, and then there is no difference: what was not reproduced never passes.

    Raises:
        RetryableError: The store does not answer, which is no fault of the model.
    """
    from infra.passwords import without_password  # noqa: PLC0415 - the child must not import it

    uri = f"models:/{registry.model}/{version}"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": registry.tracking_uri}
    environment.pop("MLFLOW_REGISTRY_URI", None)
    try:
        child = subprocess.run(  # noqa: S603 - our own module, an address of ours
            [sys.executable, "-m", "infra.clean_load", uri],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CleanLoad(difference=None, error=f"{uri} was not loaded and scored within {timeout:g} s")
    if child.returncode:
        registry.aliases()  # raises when it is the store that failed
        lines = child.stderr.strip().splitlines() or [f"exit code {child.returncode}"]
        reason = without_password(lines[-1])
        return CleanLoad(difference=None, error=f"{uri} does not load in a fresh process: {reason}")
    found = json.loads(child.stdout.splitlines()[-1])
    if found["imported"]:
        return CleanLoad(difference=None, error=f"loading {uri} imported {', '.join(found['imported'])}")
    del found["imported"]
    return CleanLoad(error=None, **found)


def reproduce(model_uri: str) -> dict[str, float]:
    """Load a model by MLflow, score its check rows and return the figures of `CleanLoad`.

    Raises:
        ValueError: There are no check rows, a score is not finite, or the model lacks its own code.
    """
    import mlflow.pyfunc  # noqa: PLC0415 - only the child needs it
    import numpy as np  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    with TemporaryDirectory(prefix="floodmark-") as folder:
        model = mlflow.pyfunc.load_model(model_uri, dst_path=folder)
        from training import evaluate  # noqa: PLC0415 - the copy within the model

        if Path(folder).resolve() not in Path(evaluate.__file__).resolve().parents:
            raise ValueError(f"the model runs {evaluate.__file__}, which is not within it")
        (rows,) = Path(folder).rglob("check_rows.parquet")
        stored = np.load(rows.with_name("check_scores.npy"), allow_pickle=False)
        frame = pd.read_parquet(rows)
        reproduced = model.predict(frame)["anomaly_score"].to_numpy()
        difference = evaluate.score_difference(stored, reproduced)
        fastest = min(timeit.repeat(lambda: model.predict(frame), number=1, repeat=PASSES))
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    if not np.isfinite(difference):
        raise ValueError(f"scores of the check rows are not finite: the difference is {difference}")
    return {
        "difference": difference,
        "microseconds_per_row": 1e6 * fastest / len(frame),
        "artifact_bytes": size,
    }


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    figures = reproduce(sys.argv[1])
    imported = [name for name in TRAINING_LIBRARIES if name in sys.modules]
    print(json.dumps({**figures, "imported": imported}))  # noqa: T201 - the answer
