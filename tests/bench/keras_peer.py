"""What one would write without Floodmark: a Parquet file read, scored by Keras and written, by pandas.

The features come from the champion's own preprocessing, which is quicker than scikit-learn's.
"""

import sys
from pathlib import Path

import keras
import pandas as pd

from training import artifact
from training.preprocessing import Preprocessing

MODEL = "model.keras"


def main(folder: Path, source: Path, out: Path, batch_rows: int) -> None:
    """Score `source` with the model in `folder`."""
    preprocessing = Preprocessing.from_json((folder / "artifact" / artifact.PREPROCESSING).read_text())
    model = keras.models.load_model(folder / MODEL)
    rows = pd.read_parquet(source)
    scores = model.predict(preprocessing.transform(rows), batch_size=batch_rows, verbose=0)
    rows["anomaly_score"] = scores.astype(float)
    rows["is_anomaly"] = rows["anomaly_score"] > 1.0
    rows.to_parquet(out, index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
