"""Two ranks under MPI, in the environment that `make mpi` makes."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from infra.launch_settings import LaunchSettings
from infra.pool import POOLS
from test_several_hosts import ROOT, make_job
from training import artifact
from training.errors import TrainingFailedError
from training.types import TrainingResult

PYTHON = ROOT / ".venv-mpi" / "bin" / "python"
PROGRAM = """if True:
    import json, sys
    from dataclasses import asdict
    from pathlib import Path
    from pydantic import TypeAdapter
    from infra.launch_settings import LaunchSettings
    from infra.pool import POOLS
    from training.types import TrainingJob
    folder = Path(sys.argv[1])
    job = TypeAdapter(TrainingJob).validate_json((folder / "job.json").read_bytes())
    settings = LaunchSettings(controller="mpi")
    print(json.dumps(asdict(POOLS["local"](job, folder / "work", timeout=200, settings=settings))))"""


def test_two_ranks_train_under_mpi_and_come_to_what_gloo_comes_to(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("there is no Horovod with MPI; make mpi")
    for name in ("mpi", "gloo"):
        (tmp_path / name).mkdir()
    job = make_job(tmp_path / "mpi", epochs=3)
    (tmp_path / "mpi" / "job.json").write_text(json.dumps(asdict(job)))
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM, tmp_path / "mpi"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = TypeAdapter(TrainingResult).validate_json(done.stdout.splitlines()[-1])
    assert (result.world_size, result.epochs) == (2, 3)
    logs = sorted((tmp_path / "mpi" / "work" / "logs").rglob("stdout"))
    assert len(logs) == 2  # one a rank
    assert '{"epoch": 3' in logs[0].read_text()
    other = POOLS["local"](make_job(tmp_path / "gloo", epochs=3), tmp_path / "gloo" / "work", timeout=200)
    assert result.loss == pytest.approx(other.loss, rel=1e-5)
    assert len(artifact.read_epochs(Path(result.artifact))) == 3


def test_mpi_is_refused_where_horovod_was_compiled_without_it(tmp_path: Path) -> None:
    settings = LaunchSettings(controller="mpi")
    with pytest.raises(TrainingFailedError, match="compiled without MPI") as caught:
        POOLS["local"](make_job(tmp_path, epochs=3), tmp_path / "work", timeout=100, settings=settings)
    assert "make mpi" in caught.value.hint
