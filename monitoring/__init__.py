"""Data quality, drift verdicts, the retraining policy and the history they read."""
