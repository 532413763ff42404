"""`make demo`, as a newcomer sees it."""

import subprocess
import sys
from pathlib import Path

from command import environment, status
from processes import wait_until_nothing_is_left_of


def test_the_demonstration_finds_the_recalibration_and_recovers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.demo"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "f7, f8, f9 read x * 1.1 + 4" in done.stdout
    for page in ("mlflow server --port 5000", "prefect server start --port 4200"):
        assert page in done.stdout
    assert "champion: version 2" in done.stdout

    home = tmp_path / ".demo" / "home"
    state = status(home, None, "--model", "shuttle")
    verdicts = [window["drift"]["status"] for window in state["windows"] if window["drift"]]
    assert verdicts == ["STABLE"] * 4 + ["DRIFTED"] * 2 + ["STABLE"] * 3
    assert [promotion["outcome"] for promotion in state["promotions"]] == ["promoted", "promoted"]
    assert [training["world_size"] for training in state["trainings"]] == [2, 2]
    wait_until_nothing_is_left_of(home)
