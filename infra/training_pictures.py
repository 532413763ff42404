"""The pictures of a training in its MLflow run: losses by epoch, and the calibration scores with the mark."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from monitoring.distances import FloatArray
from monitoring.pictures import SCORE_BINS, histogram
from monitoring.rendering import counted, number, percent
from training.types import EpochFigures, Threshold

SIZE = (8.0, 4.5)
"""In inches."""
TICKS = 9
FARTHEST_APART = 20.0
"""Ratio of the highest to the lowest loss from which on the losses are drawn logarithmically."""


def draw_epochs(epochs: Sequence[EpochFigures]) -> Figure:
    """Draw training and validation loss by epoch, and mark the epoch whose weights were taken."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    numbers = range(1, len(epochs) + 1)
    losses = np.array([(item.loss, item.validation_loss) for item in epochs])
    for name, values, colour in zip(
        ("training", "validation"), losses.T, ("tab:blue", "tab:orange"), strict=True
    ):
        axes.plot(numbers, values, marker=".", color=colour, label=name)
    best = int(np.argmin(losses[:, 1]))
    taken = f"taken: epoch {best + 1}, {number(float(losses[best, 1]))}"
    axes.plot(
        [best + 1], [losses[best, 1]], "o", color="tab:orange", fillstyle="none", markersize=11, label=taken
    )
    if losses.min() > 0 and losses.max() > FARTHEST_APART * losses.min():
        axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="mean loss", title=f"{counted(len(epochs), 'epoch', 'epochs')}")
    axes.legend()
    return figure


def draw_scores(scores: FloatArray, threshold: Threshold) -> Figure:
    """Draw the histogram of the calibration rows' finite scores (rows,) with the flood mark."""
    drawn = histogram(scores, np.empty(0), bins=SCORE_BINS, shown=threshold.value)
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.bar((np.arange(SCORE_BINS) + 0.5) / SCORE_BINS, drawn.before, 1 / SCORE_BINS, color="tab:blue")
    mark = float(drawn.scale.place(threshold.value))
    axes.axvline(mark, color="tab:red", linestyle="--", label=f"flood mark {number(threshold.value)}")
    places = np.linspace(0, 1, TICKS)
    axes.set_xticks(places, [number(drawn.scale.value(float(place))) for place in places])
    above = percent(float((scores > threshold.value).mean()))
    axes.set(
        xlabel="anomaly score" + ("" if drawn.scale.width is None else ", logarithmic away from the middle"),
        ylabel="share of rows",
        title=f"{counted(len(scores), 'calibration row', 'calibration rows')}, {above} above the flood mark",
        yscale="log",
    )
    axes.legend()
    return figure
