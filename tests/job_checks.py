"""Runs many jobs one after the other in one process, each as its single rank, for test_bad_input.

`python job_checks.py FOLDER`: the jobs are `FOLDER/*/job.json`; each exit code goes to `code` beside it.
Where a file `largest` is there, no file may grow beyond so many bytes, as on a disk that is full.
"""

import resource
import sys
from pathlib import Path
from unittest.mock import patch

from training import intake, job

UNLIMITED = resource.getrlimit(resource.RLIMIT_FSIZE)

if __name__ == "__main__":
    with patch.object(intake, "SAMPLE_VALUES", 60):  # of a streamed job, far fewer than all
        for path in sorted(Path(sys.argv[1]).glob("*/job.json")):
            largest = path.with_name("largest")
            limit = int(largest.read_text()) if largest.exists() else UNLIMITED[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, UNLIMITED[1]))
            code = job.main(str(path))
            resource.setrlimit(resource.RLIMIT_FSIZE, UNLIMITED)
            path.with_name("code").write_text(str(code))
