"""How a training is launched and what it may be trained on: the settings in `[training]`."""

from dataclasses import dataclass

from infra.launch_settings import LaunchSettings
from infra.pool import POOLS
from training.guard import MOST_LEFT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings(LaunchSettings):
    """How a training is launched, and what it may be trained on.

    New rows may hold unlabelled anomalies, but no more than `trim_share` of them. A champion that alerts on
    more than `trusted_alert_factor` times its target sees drift; see `training.guard` for what follows.
    For `checkpoints`, `checkpoint_seconds`, `megabytes_per_rank` and `scratch` see
    `training.types.TrainingJob`.
    """

    pool: str = "local"
    timeout_seconds: float = 3_600
    seed: int = 0
    trusted_alert_factor: float = 1.5
    trim_share: float = 0.05
    checkpoints: str | None = None
    checkpoint_seconds: float = 120.0
    megabytes_per_rank: float | None = None
    scratch: str | None = None

    def __post_init__(self) -> None:
        if self.pool not in POOLS:
            raise ValueError(f"pool is {self.pool!r}; allowed are {', '.join(POOLS)}")
        LaunchSettings.__post_init__(self)  # super() does not know a class that slots have made anew
        POOLS[self.pool].place(self, self.ranks)
        if not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds is {self.timeout_seconds}; it must be positive")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds is {self.checkpoint_seconds}; it must not be negative")
        if self.megabytes_per_rank is not None and not self.megabytes_per_rank >= 0:
            raise ValueError(f"megabytes_per_rank is {self.megabytes_per_rank}; it must not be negative")
        if not self.trusted_alert_factor >= 1:
            raise ValueError(f"trusted_alert_factor is {self.trusted_alert_factor}; it must be at least 1")
        if not 0 <= self.trim_share <= MOST_LEFT_OUT / 2:
            raise ValueError(
                f"trim_share is {self.trim_share}; it must lie between 0 and {MOST_LEFT_OUT / 2}"
            )
