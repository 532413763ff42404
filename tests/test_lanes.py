"""Windows and trainings side by side: whatever the order, and whoever is killed, each thing happens once."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from histories import START, bootstrap, history, judged, scored, settled, trained, version_of, window
from monitoring.history import History
from monitoring.next_step import Judge, Settle, Step, TakeWindow, Train, in_flight, lane_of, next_step
from monitoring.records import ClaimRecord, Entry, Lane, Record, RetrainRecord, TrainingRecord, WindowRecord
from monitoring.retraining import RetrainingDecision
from monitoring.verdicts import DriftStatus
from training.types import PromotionOutcome

LISTED = [window(f"w{number:02d}") for number in range(9)]


@dataclass(slots=True)
class Process:
    """One process that takes steps of a lane; killed, another one takes its place."""

    lane: Lane
    generation: int = 0
    step: Step | None = None
    decided_on: int = 0

    @property
    def owner(self) -> str:
        return f"{self.lane} {self.generation}"


@dataclass(slots=True)
class Installation:
    """The ledger of two processes, one a lane, which are made to advance one move at a time."""

    past: History = field(default_factory=History)
    versions: int = 0

    def append(self, record: Record, owner: str) -> None:
        entry = Entry(sequence=self.past.next_sequence, at=START, record=record, owner=owner)
        self.past = History(entries=(*self.past.entries, entry))

    def advance(self, process: Process) -> bool:
        """Claim a step, or end the one that is claimed; False when there is nothing to do."""
        if process.step is None:
            step = next_step(self.past, LISTED, lanes=(process.lane,))
            if step is None or lane_of(step) != process.lane:  # somebody else's claim would be in the way
                return False
            self.append(ClaimRecord(step=str(step), lane=process.lane), process.owner)
            process.step, process.decided_on = step, len(self.past.entries)
            return True
        step, process.step = process.step, None
        if process.lane == "windows" and len(self.past.entries) != process.decided_on:
            return True  # decided anew
        claim = self.past.open_claim(process.lane)
        assert claim is not None
        assert claim.owner == process.owner
        self.append(self.perform(step), process.owner)
        return True

    def perform(self, step: Step) -> Record:
        match step:
            case TakeWindow(window=taken):
                asks = in_flight(self.past, LISTED) is None and (not self.past.champion or taken.id > "w03")
                retrain_on = (taken.id,) if asks and self.past.windows else ()
                if self.past.champion is None:
                    return bootstrap(taken.id, retrain_on=retrain_on)
                return scored(taken.id, DriftStatus.DRIFTED, retrain_on=retrain_on)
            case Train(windows=windows):
                self.versions += 1
                return trained(str(self.versions), *(item.id for item in windows))
            case Judge(training=TrainingRecord(version=str(version))):
                outcome = PromotionOutcome.PROMOTED if int(version) % 2 else PromotionOutcome.REFUSED
                return judged(version, outcome, self.past.champion)
            case Settle(promotion=promotion):
                return settled(promotion.version)
        raise AssertionError(step)


@given(moves=st.lists(st.tuples(st.sampled_from(["windows", "training"]), st.booleans()), max_size=80))
def test_any_order_and_any_kill_take_each_window_once_and_train_what_was_asked_for(
    moves: list[tuple[Lane, bool]],
) -> None:
    installation = Installation()
    processes: dict[Lane, Process] = {lane: Process(lane=lane) for lane in ("windows", "training")}
    for lane, killed in moves:
        process = processes[lane]
        if killed:
            process.generation, process.step = process.generation + 1, None
        installation.advance(process)
    while sum(map(installation.advance, processes.values())):
        assert len(installation.past.entries) < 500, "it does not end"
    past = installation.past
    assert [record.window.id for record in past.windows] == [item.id for item in LISTED]
    asked = [
        record.decision.windows for record in past.windows if record.decision and record.decision.retrain
    ]
    assert [tuple(item.id for item in training.windows) for training in past.trainings] == asked
    assert [verdict.version for verdict in past.verdicts] == [training.version for training in past.trainings]
    assert next_step(past, LISTED) is None
    under_way = 0
    for entry in past.entries:
        under_way += isinstance(entry.record, WindowRecord) and asks(entry.record.decision)
        under_way -= isinstance(entry.record, TrainingRecord)
        assert under_way <= 1


def asks(decision: RetrainingDecision | None) -> bool:
    return decision is not None and decision.retrain


FIRST_MODEL = (
    bootstrap("w00"),
    bootstrap("w01", retrain_on=("w00", "w01")),
    trained("1", "w00", "w01"),
    judged("1"),
    settled("1"),
)
DRIFTED = scored("w02", DriftStatus.DRIFTED, retrain_on=("w02",))


def test_each_lane_is_told_of_its_own_steps() -> None:
    past = history(*FIRST_MODEL, DRIFTED)
    training = Train(reason="drift", windows=(version_of("w02"),))
    trains: tuple[Lane, ...] = ("training",)
    takes: tuple[Lane, ...] = ("windows",)
    assert next_step(past, LISTED) == next_step(past, LISTED, lanes=trains) == training
    assert next_step(past, LISTED, lanes=takes) == TakeWindow(window=LISTED[3])
    assert lane_of(training) == "training"


def test_windows_taken_while_a_training_ran_count_once_its_candidate_is_refused() -> None:
    refused = judged("2", PromotionOutcome.REFUSED, "1")
    past = history(*FIRST_MODEL, DRIFTED, scored("w03"), trained("2", "w02"), refused, scored("w04"))
    assert [outlook.id for outlook in past.outlooks_since_training()] == ["w03", "w04"]
    promoted = history(
        *FIRST_MODEL, DRIFTED, scored("w03"), trained("2", "w02"), judged("2", from_version="1")
    )
    assert promoted.outlooks_since_training() == []


def test_a_claim_of_an_earlier_version_holds_both_lanes() -> None:
    past = history(ClaimRecord(step="training on w00"))
    assert past.open_claim("windows") == past.open_claim("training") == past.entries[0]
    past = history(ClaimRecord(step="training on w00", lane="training"))
    assert past.open_claim("windows") is None


def test_a_persons_order_is_trained_over_a_mute_that_was_before_it() -> None:
    past = history(*FIRST_MODEL, scored("w02"), RetrainRecord(windows=("w01", "w02"), reason="new pump"))
    step = Train(reason="new pump", windows=(version_of("w01"), version_of("w02")))
    assert next_step(past, LISTED) == step
    ended = history(*(entry.record for entry in past.entries), trained("2", "w01", "w02"))
    assert ended.trigger_of(ended.trainings[-1]) == "person"
    assert ended.pending_order() is None
