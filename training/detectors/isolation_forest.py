"""An isolation forest (Liu, Ting and Zhou 2008): rows that few random cuts set apart are anomalous."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.detectors import Features, Parts, Ranks

MOST_ROWS = 65_536
"""That the trees draw their samples from; a tree sees a few hundred."""
OPSETS = {"": 18, "ai.onnx.ml": 3}


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class Forest:
    """Options. `sample` is the rows of one tree."""

    trees: Annotated[int, Field(ge=1, le=10_000)] = 100
    sample: Annotated[int, Field(ge=2, le=MOST_ROWS)] = 256
    validation_share: ClassVar[float] = 0.1
    window_rows: ClassVar[int] = 1

    def fit_directly(self, parts: Parts, seed: int, ranks: Ranks) -> "ForestModel":
        """Fit on a sample of all ranks' rows, the same for any number of ranks; each grows the same trees."""
        from sklearn.ensemble import IsolationForest  # noqa: PLC0415 - naming a detector must be quick

        rows = _sample(parts, seed, ranks)
        forest = IsolationForest(
            n_estimators=self.trees, max_samples=min(self.sample, len(rows)), random_state=seed
        )
        return ForestModel(forest.fit(rows), rows.shape[1])


class ForestModel:
    """The forest, called and exported as a Keras model is."""

    def __init__(self, forest: Any, width: int) -> None:  # noqa: ANN401 - scikit-learn has no types
        self.forest = forest
        self.input_shape = (None, width)

    def __call__(self, features: Any) -> np.ndarray:  # noqa: ANN401 - an array or a tensor
        """Return the score of Liu et al. for each row: towards 1 where few cuts isolate it."""
        return np.asarray(-self.forest.score_samples(np.asarray(features)))

    def export(self, filepath: Any, *, format: str, verbose: bool) -> None:  # noqa: A002, ANN401 - as in Keras
        """Write the forest as ONNX, whose only output is the score."""
        import onnx  # noqa: PLC0415 - where nothing is exported, it need not be loaded
        from skl2onnx import to_onnx  # noqa: PLC0415 - likewise

        del format, verbose
        example = np.zeros((1, *self.input_shape[1:]), dtype=np.float32)
        options = {id(self.forest): {"score_samples": True}}
        model = to_onnx(self.forest, example, options=options, target_opset=OPSETS)
        graph = model.graph
        graph.node.append(onnx.helper.make_node("Neg", ["score_samples"], ["score"]))
        del graph.output[:]
        graph.output.append(onnx.helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, [None, 1]))
        onnx.checker.check_model(model)
        Path(filepath).write_bytes(model.SerializeToString())


def _sample(parts: Parts, seed: int, ranks: Ranks) -> Features:
    """Return at most `MOST_ROWS` rows of all ranks, the same in the same order on each.

    Where row i of the whole is row i // size of rank i % size, they do not depend on the number of ranks.
    """
    lengths = ranks.gather(np.array([sum(map(len, parts()))]))
    rows = int(lengths.sum())
    drawn = np.random.default_rng(seed).choice(rows, min(rows, MOST_ROWS), replace=False, shuffle=False)
    place, owner = np.divmod(np.sort(drawn), ranks.size())
    held = place < lengths[owner]  # all, where the rows were dealt out in turn
    place, owner = place[held], owner[held]
    gathered = ranks.gather(_take(parts, place[owner == ranks.rank()]))
    ordered = np.empty_like(gathered)
    ordered[np.argsort(owner, kind="stable")] = gathered
    return ordered


def _take(parts: Parts, places: np.ndarray) -> Features:
    """Return the rows at the ascending `places` of this rank's rows."""
    taken, first = [], 0
    for part in parts():
        taken.append(part[places[(places >= first) & (places < first + len(part))] - first])
        first += len(part)
    return np.concatenate(taken)
