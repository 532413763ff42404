"""The vocabulary, the pure decisions, the detectors and the training job."""
