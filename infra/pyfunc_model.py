"""The registered model as MLflow runs it: a script ("models from code"), so that loading unpickles nothing.

MLflow stores this file in the model and executes it on loading; `training` is then the copy of that
package which was stored beside it.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from training.scorer import Scorer


class DetectorModel(PythonModel):
    """Scores rows and holds them against the flood mark of the same artifact."""

    scorer: Scorer

    def load_context(self, context: PythonModelContext) -> None:
        """Load the sealed artifact that lies within the model.

        Raises:
            InvalidArtifactError: A file of the artifact is missing or is not what was registered.
        """
        self.scorer = Scorer.load(Path(context.artifacts["detector"]))

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:  # type: ignore[override] # context is optional
        """Return `anomaly_score`, `threshold` and `is_anomaly` per row, under the index of `model_input`.

        Features are found by name: the order of the columns does not matter and others are ignored.

        Raises:
            InvalidWindowError: A feature is missing or is not of its column's kind.
        """
        scores = self.scorer.score(model_input)
        thresholds = np.full_like(scores, self.scorer.threshold.value)
        return pd.DataFrame(
            {"anomaly_score": scores, "threshold": thresholds, "is_anomaly": scores > thresholds},
            index=model_input.index,
        )


set_model(DetectorModel())
