"""The Prefect flows and the command line: the composition root."""
