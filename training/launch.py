"""`python -m training.launch`: the supervisor of a training. Starts its ranks, watches them, ends them.

The plan is the first line of standard input; when the input ends, whoever asked is gone and every rank on
every host is ended. Reports go to standard output, the outcome last, one JSON object a line.
"""

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from threading import Thread

from training.bound_child import leave_when_told
from training.errors import ConfigurationError
from training.launch_plan import Failure, LaunchPlan


def say(**message: object) -> None:
    """Tell whoever asked for the training."""
    print(json.dumps(message), flush=True)  # noqa: T201 - the channel to the pool


def main() -> None:
    """Serve one plan."""
    leave_when_told()
    plan = LaunchPlan.from_line(sys.stdin.readline())
    Thread(target=_leave_with_input, daemon=True).start()
    Path(plan.logs).mkdir(parents=True, exist_ok=True)
    try:
        from training.launch_restarts import Supervisor  # noqa: PLC0415 - it loads Horovod's launcher

        failure = Supervisor(plan, say).run()
    except ImportError as error:
        failure = Failure(
            message=f"Horovod's launcher cannot be loaded: {error}",
            hint="Install Horovod as `make setup` does, with the TensorFlow that is there.",
            retryable=False,
        )
    except ConfigurationError as error:
        failure = Failure(message=error.message, hint=error.hint, retryable=False, configuration=True)
    say(event="outcome", failure=failure and asdict(failure))


def _leave_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
