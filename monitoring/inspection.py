"""What the checks of the data contract read, and what they return."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from monitoring.contract import Contract, QualityLimits, learn_contract
from monitoring.past_windows import PastWindows
from monitoring.profile import ColumnProfile, WindowProfile
from training.types import FeatureSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """What a check found. A `mild` one, short of the check's bound, is never more than a warning."""

    column: str | None
    message: str
    observed: float | None = None
    bound: float | None = None
    mild: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a window is held against.

    Attributes:
        schema: The champion's schema.
        reference: The profile of the champion's reference; None while there is no champion.
        limits: The bounds.
        stated: What a contract's file says, over what is learned from the reference.
        past: Earlier windows, as far as any are known.
    """

    schema: FeatureSchema
    reference: WindowProfile | None = None
    limits: QualityLimits = field(default_factory=QualityLimits)
    stated: Contract = field(default_factory=Contract)
    past: PastWindows = field(default_factory=PastWindows)

    @property
    def contract(self) -> Contract:
        """What is learned, and over it what is stated."""
        return learn_contract(self.reference, self.schema, self.limits).overridden_by(self.stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the checks read: a window, its terms, and the contract that these amount to."""

    window: WindowProfile
    terms: Terms
    contract: Contract
    now: datetime

    def sound(self) -> Iterator[tuple[str, ColumnProfile]]:
        """Return the window's features that hold what the schema says, or nothing."""
        return ((name, column) for name, column in self.window.columns.items() if not column.held)


def shown_share(share: float, item: Inspection) -> str:
    """Show a share of the sample, which may have missed what the whole window holds."""
    least = 1 / max(len(item.window.sample), 1)
    about = "about " if len(item.window.sample) < item.window.rows else ""
    return f"{about}{share:.2%}" if share else f"less than {least:.2%}"
