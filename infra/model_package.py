"""What MLflow is given of a training: the model as models-from-code, its tags, parameters and metrics."""

import os
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version as installed_version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pydantic import TypeAdapter

from training import artifact
from training.errors import InvalidArtifactError
from training.types import EpochFigures, Threshold, TrainingRequest, TrainingResult

MLFLOW_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    # Otherwise MLflow copies pyproject.toml and uv.lock of whatever folder we were started in into the model.
    "MLFLOW_UV_AUTO_DETECT": "false",
    # Twelve seconds of patience; MLflow's seven retries hang for minutes, and the flows retry by themselves.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    # MLflow waits two minutes for each answer of a server that hangs.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
for _name, _value in MLFLOW_DEFAULTS.items():  # MLflow reads them as it is imported; what is set outside wins
    os.environ.setdefault(_name, _value)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of type hints of its own
    import mlflow.pyfunc
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModelOutput, Metric, Param, Run
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

REQUEST_ID = "floodmark.request_id"
DETECTOR = "floodmark.detector"
THRESHOLD = "floodmark.threshold"
THRESHOLD_METHOD = "floodmark.threshold_method"
VERDICT = "floodmark.verdict"

METRICS_PER_BATCH = 1_000
"""MLflow's own limit."""

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ("numpy", "onnxruntime", "pandas", "pyarrow", "pydantic")
# No input schema: where it says double, MLflow refuses int64, and where it says any, it walks value by value
# (30 thousand rows a second). The features are in the model's metadata, and the scorer checks them.
SIGNATURE = ModelSignature(
    outputs=Schema(
        [
            ColSpec(DataType.double, "anomaly_score"),
            ColSpec(DataType.double, "threshold"),
            ColSpec(DataType.boolean, "is_anomaly"),
        ]
    )
)


def save_model(path: Path, request: TrainingRequest, folder: Path, model: Model) -> None:
    """Write the MLflow model to the new folder `path`: artifact, script, package, and no pickle."""
    named = path.with_name("detector")  # MLflow calls the artifact's folder in the model as it finds it
    shutil.copytree(folder, named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for an input example, which would be training data
        mlflow.pyfunc.save_model(
            str(path),
            python_model=str(ROOT / "infra" / "pyfunc_model.py"),
            artifacts={"detector": str(named)},
            code_paths=[str(ROOT / "training")],
            signature=SIGNATURE,
            pip_requirements=[f"{name}=={installed_version(name)}" for name in REQUIREMENTS],
            metadata={"features": {column.name: column.kind for column in request.schema.features}},
            mlflow_model=model,
        )


def check_artifact(folder: Path, request: TrainingRequest, result: TrainingResult) -> None:
    """Refuse to register an artifact that is not the one of this request and result."""
    artifact.verify(folder)
    threshold = TypeAdapter(Threshold).validate_json((folder / artifact.THRESHOLD).read_bytes())
    if request.id != result.request_id or threshold != result.threshold:
        raise InvalidArtifactError(
            f"{folder} holds {threshold}, and its training answers request {result.request_id}",
            hint=f"expected were {result.threshold} and request {request.id}; nothing was registered",
        )


def version_tags(request: TrainingRequest, result: TrainingResult) -> dict[str, str]:
    """Return what a person reads beside the version in the UI."""
    return {
        REQUEST_ID: request.id,
        DETECTOR: request.detector.name,
        THRESHOLD: repr(result.threshold.value),
        THRESHOLD_METHOD: result.threshold.method,
    }


def run_params(request: TrainingRequest) -> list[Param]:
    """Return everything that determined the training."""
    params: dict[str, object] = {
        "detector": request.detector.name,
        **{f"option.{name}": value for name, value in sorted(request.detector.options.items())},
        "windows": " ".join(window.id for window in request.windows),
        "target_alert_rate": request.target_alert_rate,
        "threshold_method": request.threshold_method,
        "threshold_beta": request.threshold_beta,
        "alerts_per_day": request.alerts_per_day,
        "world_size": request.world_size,
        "seed": request.seed,
        "champion_version": request.champion_version,
    }
    return [Param(key, str(value)) for key, value in params.items()]


def run_metrics(result: TrainingResult, *, at: int) -> list[Metric]:
    """Return the figures as of `at`, the run's start: a repeated call repeats them and MLflow drops them."""
    figures = {
        "loss": result.loss,
        "rows": result.rows,
        "epochs": result.epochs,
        "seconds": result.seconds,
        "threshold": result.threshold.value,
        "target_alert_rate": result.threshold.target_alert_rate,
    }
    return [Metric(key, value, at, 0) for key, value in figures.items()]


def epoch_metrics(epochs: Sequence[EpochFigures], *, at: int) -> list[Metric]:
    """Return the figures of the epochs, which MLflow draws as curves; the time is as in `run_metrics`."""
    return [
        Metric(f"epoch_{name}", value, at, epoch)
        for epoch, figures in enumerate(epochs, start=1)
        for name, value in asdict(figures).items()
    ]


def log_training(client: MlflowClient, run: Run, request: TrainingRequest, result: TrainingResult) -> None:
    """Write what a training was and came to into its run: parameters, figures, curves and pictures."""
    from infra.training_pictures import draw_epochs, draw_scores  # noqa: PLC0415 - Matplotlib takes half a second

    run_id, at, folder = run.info.run_id, run.info.start_time, Path(result.artifact)
    epochs = artifact.read_epochs(folder)
    client.log_batch(run_id, params=run_params(request))
    metrics = [*run_metrics(result, at=at), *epoch_metrics(epochs, at=at)]
    for first in range(0, len(metrics), METRICS_PER_BATCH):
        client.log_batch(run_id, metrics=metrics[first : first + METRICS_PER_BATCH])
    scores = np.load(folder / artifact.CALIBRATION_SCORES, allow_pickle=False)
    client.log_figure(run_id, draw_scores(scores, result.threshold), "pictures/scores.png")
    if epochs:
        client.log_figure(run_id, draw_epochs(epochs), "pictures/epochs.png")


def log_model(client: MlflowClient, run: Run, request: TrainingRequest, folder: Path) -> tuple[str, str]:
    """Store the model and return its id and location; one that a killed call left stays unregistered."""
    logged = client.create_logged_model(
        run.info.experiment_id,
        name="detector",
        source_run_id=run.info.run_id,
        tags={REQUEST_ID: request.id},
    )
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
    with TemporaryDirectory(prefix="floodmark-") as scratch:
        model = Path(scratch) / "model"
        save_model(model, request, folder, Model(run_id=run.info.run_id, model_id=logged.model_id))
        client.log_model_artifacts(logged.model_id, str(model))
    client.finalize_logged_model(logged.model_id, "READY")
    return logged.model_id, logged.artifact_location
