"""How well detectors of sequences find the valve's closing in SKAB, by the benchmark's own protocol.

Of each experiment the first 400 rows, which are normal, are trained on, and all its rows are tested; F1 is
that of all rows of all experiments together, without point adjustment (Katser and Kozitsin 2020, "Skoltech
anomaly benchmark"). The mark is, for every model alike, the quantile of the training rows' scores that the
shipped target alert rate asks for, and detectors have their shipped options: no label is used but for F1.
The eight experiments of shared/data are those with valve 1, of the benchmark's 34:
published figures, over all of them, are .78 (Conv-AE), .76 (T² and Q of PCA) and .74 (LSTM-AE).

The peers score single rows; beside that, as the mean over the same windows, since most of what a detector of
sequences gains here is that an experiment goes on for minutes.
"""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import f1_score

from monitoring.schema import infer_schema
from training.calibrators import ThresholdSpec
from training.preprocessing import fit_preprocessing
from training.sequences import Stretches, mean_scores
from training.types import DetectorSpec

TRAINED_ROWS = 400
QUANTILE = 1 - ThresholdSpec().target_alert_rate
DETECTORS = ("conv_autoencoder", "lstm_autoencoder", "transformer_autoencoder")
Scores = npt.NDArray[np.float64]
Model = Callable[[pd.DataFrame], np.ndarray]
Make = Callable[[pd.DataFrame, int], Model]


def skab_f1(
    pool: Executor, data: Path, peers: dict[str, Make], seeds: range
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each detector's mean F1 in percent, and beside it that of each peer."""
    files = [pd.read_csv(path, sep=";") for path in sorted(data.glob("valve*.csv"))]
    makes = dict(peers)
    for name, make in peers.items():
        makes[f"{name}, mean over windows"] = partial(smoothed, make, window_rows(DETECTORS[0]))
    makes |= {name: partial(sequence_model, name) for name in DETECTORS}
    runs = {name: [pool.submit(f1, files, make, seed) for seed in seeds] for name, make in makes.items()}
    means = {name: float(np.mean([run.result() for run in of_seeds])) for name, of_seeds in runs.items()}
    beside = {name: figure for name, figure in means.items() if name not in DETECTORS}
    for name in DETECTORS:
        yield name, {name: means[name], **beside}


def f1(files: list[pd.DataFrame], make: Make, seed: int) -> float:
    """Return the F1 in percent of all files together."""
    truth, alerts = np.concatenate([file["anomaly"].to_numpy(int) for file in files]), []
    for file in files:
        rows = file.drop(columns=["datetime", "anomaly", "changepoint"])
        model = make(rows.head(TRAINED_ROWS), seed)
        mark = np.quantile(model(rows.head(TRAINED_ROWS)), QUANTILE)
        alerts.append(model(rows) > mark)
    return 100 * float(f1_score(truth, np.concatenate(alerts)))


def window_rows(name: str) -> int:
    """Return the length of a detector's windows."""
    from training.detectors import detector  # noqa: PLC0415 - as below

    return detector(DetectorSpec(name=name)).window_rows


def sequence_model(name: str, rows: pd.DataFrame, seed: int) -> Model:
    """Fit a detector with its defaults on one sequence, by the code that a rank of a training runs."""
    from training.detectors import detector  # noqa: PLC0415 - TensorFlow reads the environment set before
    from training.fit import fit  # noqa: PLC0415 - likewise
    from training.window_feed import WindowFeed, WindowPlan  # noqa: PLC0415 - likewise

    schema, _ = infer_schema(rows, time_column=None, label_column=None, ignore=[])
    preprocessing = fit_preprocessing(schema, rows, lambda array: array)
    options = detector(DetectorSpec(name=name))
    plan = WindowPlan.of(
        np.zeros(len(rows), dtype=np.int64),
        length=options.window_rows,
        validation_share=options.validation_share,
        seed=seed,
        rank=0,
        size=1,
    )
    first, last = plan.rows
    features = preprocessing.transform(rows)[first:last]
    with redirect_stdout(io.StringIO()):  # the epochs
        network = fit(options, WindowFeed(features, plan, seed), seed).model

    def score(frame: pd.DataFrame) -> Scores:
        whole = Stretches(order=np.arange(len(frame)), bounds=np.array([0, len(frame)]))
        values = preprocessing.transform(frame)
        return mean_scores(lambda windows: np.asarray(network(windows)), values, whole, options.window_rows)

    return score


def smoothed(make: Make, width: int, rows: pd.DataFrame, seed: int) -> Model:
    """Make a model whose score is the mean over `width` rows around each."""
    model = make(rows, seed)
    return lambda frame: pd.Series(model(frame)).rolling(width, min_periods=1, center=True).mean().to_numpy()
