"""Past windows under policies: the loop's own decisions, counted, drawn, and nothing written."""

import gc
import json
import sys
import weakref
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flows.cli import main
from histories import trained, window
from infra.ledger import Ledger
from infra.local_store import LocalStore
from monitoring.backtest import BacktestPolicy, Reading, References, Replay
from monitoring.backtest_result import change_place, result_of
from monitoring.drift import DriftPolicy
from monitoring.repeated import content_digest
from monitoring.retraining import RetrainingPolicy
from monitoring.season import Season
from training.errors import ConfigurationError

DAYS, CHANGED = 10, 6
START = datetime(2026, 1, 1, tzinfo=UTC)
READING = Reading(time_column="at", label_column="label")


def day(number: int, rows: int = 500) -> pd.DataFrame:
    """One day of rows; from the day `CHANGED` on, both sensors read higher."""
    generator = np.random.default_rng(number)
    shift = 2.0 if number >= CHANGED else 0.0
    return pd.DataFrame(
        {
            "at": pd.date_range(START + timedelta(days=number), periods=rows, freq="min"),
            "x": generator.normal(shift, 1, rows),
            "y": generator.normal(shift, 1, rows),
            "label": 0,
        }
    )


FRAMES = {f"day-{number}": day(number) for number in range(DAYS)}


def policy(name: str = "2 of 3", **bounds: int) -> BacktestPolicy:
    retraining = replace(RetrainingPolicy(bootstrap_windows=2, min_rows=400), **bounds)
    return BacktestPolicy(name=name, drift=DriftPolicy(alpha=0.01), retraining=retraining)


def replayed(
    *policies: BacktestPolicy, frames: dict[str, pd.DataFrame] = FRAMES, reading: Reading = READING
) -> list[Replay]:
    references = References(frames.__getitem__, 0)
    replays = [Replay(one, reading, references) for one in policies]
    for name, frame in frames.items():
        for replay in replays:
            replay.take(window(name), frame, content_digest(frame))
    return replays


def verdicts(replay: Replay) -> list[str]:
    return [
        record.drift.status.value if record.drift else record.outcome for record in replay.history.windows
    ]


def decided(replay: Replay) -> list[str]:
    return [
        record.window.id for record in replay.history.windows if record.decision and record.decision.retrain
    ]


@pytest.fixture(scope="module")
def replays() -> list[Replay]:
    patient = {"drifted": 3, "of": 3}
    return replayed(policy(), policy("1 of 1", drifted=1, of=1), policy("3 of 3", **patient))


def test_the_change_is_found_and_the_reference_follows_each_decision(replays: list[Replay]) -> None:
    assert [decided(replay) for replay in replays] == [
        ["day-1", "day-7"],
        ["day-1", "day-6"],
        ["day-1", "day-8"],
    ]
    for replay, drifted in zip(replays, (2, 1, 3), strict=True):
        before, after = ["bootstrap"] * 2 + ["STABLE"] * 4, ["STABLE"] * (DAYS - CHANGED - drifted)
        assert verdicts(replay) == before + ["DRIFTED"] * drifted + after


def test_figures_count_windows_from_the_change(replays: list[Replay]) -> None:
    patient = result_of("3 of 3", replays[2].history, change=CHANGED, seconds_each=2.5)
    assert (patient.windows_to_verdict, patient.windows_to_decision, patient.false_alarms) == (0, 2, 0)
    assert (patient.trainings, patient.training_seconds) == (2, 5.0)
    assert patient.training_rows == 500 + 750, "half of two windows' rows, then of three"
    late = result_of("3 of 3", replays[2].history, change=CHANGED + 1, seconds_each=None)
    assert (late.windows_to_verdict, late.windows_to_decision, late.false_alarms) == (0, 1, 1)
    assert late.training_seconds is None
    never = result_of("3 of 3", replays[2].history, change=DAYS - 1, seconds_each=None)
    assert (never.windows_to_verdict, never.windows_to_decision, never.false_alarms) == (None, None, 3)
    unknown = result_of("3 of 3", replays[2].history, change=None, seconds_each=None)
    assert (unknown.windows_to_verdict, unknown.false_alarms, unknown.drifted) == (None, None, 3)


@pytest.mark.parametrize(
    ("changed_at", "place"),
    [("day-6", 6), ("2026-01-07", 6), ("2026-01-07T04:00:00", 6), ("2026-01-07T12:00:00+00:00", 7)],
)
def test_a_change_is_named_by_a_window_or_by_a_time(
    replays: list[Replay], changed_at: str, place: int
) -> None:
    assert change_place(changed_at, replays[0].history.windows) == place


@pytest.mark.parametrize("wrong", ["day-99", "2030-01-01"])
def test_a_change_outside_of_the_source_is_an_error(replays: list[Replay], wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=wrong):
        change_place(wrong, replays[0].history.windows)


def test_equal_trainings_share_one_reference(replays: list[Replay]) -> None:
    twins = replayed(
        policy("a"),
        policy("b", min_rows=900),
        frames={f"day-{number}": FRAMES[f"day-{number}"] for number in range(3)},
    )
    assert twins[0].reference is twins[1].reference is not None
    assert replays[0].reference is not replays[1].reference


def test_a_cooldown_holds_and_is_counted() -> None:
    eager = policy(drifted=1, of=1, cooldown_windows=4)
    frames = {f"day_{number}": day(number) for number in (0, 1, 6, 7, 8, 9)}
    replay = replayed(eager, frames=frames)[0]
    assert decided(replay) == ["day_1"]
    assert result_of("eager", replay.history, change=2, seconds_each=None).held == {"cooldown": 4}


def test_without_a_time_column_each_window_is_a_day_of_its_own() -> None:
    frames = {name: frame.drop(columns="at") for name, frame in FRAMES.items()}
    replay = replayed(policy(daily_trainings=1), reading=Reading(label_column="label"), frames=frames)[0]
    assert decided(replay) == ["day-1", "day-7"]


@pytest.mark.parametrize(("season", "status"), [("none", "DRIFTED"), ("weekday", "INCONCLUSIVE")])
def test_a_season_that_the_reference_has_not_seen_is_no_drift(season: Season, status: str) -> None:
    seasonal = replace(policy(), drift=replace(DriftPolicy(), season=season))
    frames = dict(list(FRAMES.items())[CHANGED - 3 : CHANGED + 1])
    [replay] = replayed(seasonal, frames=frames)
    assert verdicts(replay)[-1] == status


def test_a_weekday_seen_before_is_compared_with_its_like() -> None:
    seasonal = replace(
        policy(bootstrap_windows=7), drift=replace(DriftPolicy(), season="weekday", min_rows=1)
    )
    weeks = [day(number % 7).assign(at=day(number)["at"]) for number in range(14)]
    frames = {
        f"day-{number:02}": rows.sample(frac=1, random_state=number) for number, rows in enumerate(weeks)
    }
    [replay] = replayed(seasonal, frames=frames)
    assert verdicts(replay)[7:] == ["STABLE"] * 7


def test_trainings_on_one_day_are_held_to_the_budget() -> None:
    one_day = {name: frame.assign(at=FRAMES["day-0"]["at"]) for name, frame in FRAMES.items()}
    replay = replayed(policy(daily_trainings=1), frames=one_day)[0]
    assert decided(replay) == ["day-1"]
    assert result_of("one", replay.history, change=None, seconds_each=None).held == {"budget": 3}


def test_a_broken_and_a_repeated_window_are_quarantined_and_never_trained_on() -> None:
    frames = {**FRAMES, "day-3": day(3).drop(columns="x"), "day-4": day(2)}
    replay = replayed(policy(), frames=frames)[0]
    assert verdicts(replay)[3:5] == ["quarantined"] * 2
    trained_on = [item.id for training in replay.history.trainings for item in training.windows]
    assert trained_on == ["day-0", "day-1", "day-6", "day-7"]


def test_too_few_rows_to_split_is_a_failed_training_and_the_replay_goes_on() -> None:
    tiny = {f"day_{number}": day(number, rows=2) for number in range(4)}
    reading = replace(READING, quality=replace(READING.quality, min_rows=1))
    replay = replayed(policy(min_rows=1, bootstrap_windows=1), reading=reading, frames=tiny)[0]
    assert replay.history.trainings[0].outcome == "failed"
    assert len(replay.history.windows) == 4


def test_no_rows_are_kept_but_the_reference() -> None:
    replay = replayed(policy(), frames={"day-0": day(0), "day-1": day(1)})[0]
    frame = day(2)
    kept = weakref.ref(frame)
    replay.take(window("day-2"), frame, content_digest(frame))
    del frame
    gc.collect()
    assert kept() is None


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "source").mkdir()
        for name, frame in FRAMES.items():
            frame.to_parquet(tmp_path / "source" / f"{name}.parquet")
        (tmp_path / "source" / "day-2.parquet").write_text("no table")
        (tmp_path / "floodmark.toml").write_text(
            'time_column = "at"\nlabel_column = "label"\n'
            "[retraining]\nbootstrap_windows = 2\nmin_rows = 400\n[drift]\nalpha = 0.01\n"
        )
        (tmp_path / "eager.toml").write_text("[retraining]\ndrifted = 1\nof = 1\n")
        (tmp_path / "home").mkdir()
        return tmp_path

    def run(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["floodmark", "backtest", *arguments])
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    def test_json_and_a_drawing_and_nothing_else(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ledger = Ledger.of(LocalStore(folder / "home"), "floodmark")
        ledger.append(ledger.load(), trained("1", "day-0"))
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        options = ["--home", "home", "--policy", "eager.toml", "--changed-at", "day-6", "--json"]
        assert self.run(monkeypatch, "source", *options, "--drawing", "timeline.svg") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["schema_version"], told["changed_at"]) == (1, "day-6")
        current, eager = told["policies"]
        assert (current["policy"], eager["policy"]) == ("current", "eager")
        assert eager["retraining"]["bootstrap_windows"] == 2, "keys that a file leaves out stay as they are"
        assert [current["windows_to_decision"], eager["windows_to_decision"]] == [1, 0]
        assert (current["training_seconds"], current["quarantined"], current["false_alarms"]) == (2.0, 1, 0)
        assert [item["id"] for item in current["timeline"]] == list(FRAMES)
        drawn = (folder / "timeline.svg").read_text()
        assert "<svg" in drawn
        after = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        assert set(after) - set(before) == {folder / "timeline.svg"}
        assert all(after[path] == before[path] for path in before if path != folder)

    def test_plain_lines_compare_the_current_policy_with_stated_alternatives(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for number in range(4, DAYS):
            (folder / "source" / f"day-{number}.parquet").unlink()
        assert self.run(monkeypatch, "source", "--home", "absent", "--drawing", "timeline.png") == 0
        said = capsys.readouterr().out
        assert "current (2 of 3): 4 windows, 1 quarantined, 0 DRIFTED; 1 trainings of 500 rows; held" in said
        assert "\n1 of 1 (1 of 1): " in said
        assert "\n3 of 5 (3 of 5): " in said
        assert "  day-1  retrain: first model, from 2 windows" in said
        assert "note: no model is trained" in said
        assert not (folder / "absent").exists()
        assert (folder / "timeline.png").read_bytes().startswith(b"\x89PNG")

    def test_a_wrong_value_is_told_with_its_file(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "eager.toml").write_text("[drift]\nalpha = 7\n")
        assert self.run(monkeypatch, "source", "--policy", "eager.toml") == 2
        said = capsys.readouterr().err
        assert "alpha is 7" in said
        assert "mend eager.toml" in said

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["nowhere"], "nowhere does not exist"),
            (["source", "--policy", "absent.toml"], "absent.toml cannot be read"),
            (["source", "--policy", "other.toml"], "holds gates"),
            (["source", "--policy", "wrong.toml"], "drifted is 4 of 3"),
            (["source", "--policy", "eager.toml", "--policy", "eager.toml"], "a name of its own"),
            (["source", "--changed-at", "noon"], "neither a window of the source nor an ISO 8601 time"),
            (["source", "--drawing", "timeline.jpg"], "ending in .png or .svg"),
            (["source", "--drawing", "absent/timeline.png"], "existing folder"),
        ],
    )
    def test_wrong_use_is_told_before_anything_is_read(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        said: str,
    ) -> None:
        (folder / "other.toml").write_text("[gates]\nmargin = 0.1\n")
        (folder / "wrong.toml").write_text("[retraining]\ndrifted = 4\n")
        assert self.run(monkeypatch, *arguments) == 2
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.out == ""
