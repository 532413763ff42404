"""The errors of Floodmark: what failed, what state is left, and the next command.

Whether a failure is worth retrying is a property of its type, never of the place that catches it.
"""


class FloodmarkError(Exception):
    """Base of every expected failure. `hint` names what is allowed and the next command."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigurationError(FloodmarkError):
    """Wrong use or configuration: only a person can mend it (exit code 2)."""


class InvalidWindowError(FloodmarkError):
    """The data of one window is unusable: the window is quarantined and the loop goes on."""


class UnscorableError(InvalidWindowError):
    """The champion's scores of a sound window are not finite: another version may be able to score it."""


class TrainingFailedError(FloodmarkError):
    """A training ended without a model and would end so again with the same input."""


class InvalidArtifactError(FloodmarkError):
    """A model artifact is incomplete or is not what its manifest says."""


class RetryableError(FloodmarkError):
    """Something outside failed in passing: the same command may succeed later (exit code 1)."""
