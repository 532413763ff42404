"""What a deployed flow run says of its steps: lines of its log, and the message of its final state."""

import time

from prefect import get_run_logger

from flows.console import EVERY_S, describe
from flows.training_events import Event, line_of, listen
from monitoring.next_step import Step
from monitoring.records import Record, TrainingRecord

SHOWN_LINES = 3


class RunLog:
    """Logs what is done, and counts trainings that failed."""

    def __init__(self) -> None:
        self.logger = get_run_logger()
        self.lines: list[str] = []
        self.failed_trainings = 0
        self.told = time.monotonic()
        listen(self.training)

    def __call__(self, step: Step | None, record: Record | None) -> None:
        """Log a step that begins (`record` is None) or what came of it."""
        if record is None:
            self.logger.info("%s begins", step)
        else:
            self.tell(record)

    def tell(self, record: Record) -> None:
        """Log a record."""
        self.failed_trainings += isinstance(record, TrainingRecord) and record.outcome == "failed"
        if line := describe(record):
            self.say(line)

    def say(self, line: str) -> None:
        """Log something that was done."""
        self.lines.append(line)
        self.logger.info("%s", line)

    def training(self, event: Event) -> None:
        """Log from time to time how a training comes on."""
        if event["event"] == "restarting" or time.monotonic() - self.told >= EVERY_S:
            self.told = time.monotonic()
            self.logger.info("training: %s", line_of(event))

    @property
    def summary(self) -> str:
        """The last lines, or that there was nothing to do."""
        more = len(self.lines) - SHOWN_LINES
        before = [f"… {more} before"] if more > 0 else []
        return "; ".join([*before, *self.lines[-SHOWN_LINES:]]) or "nothing was owed"
