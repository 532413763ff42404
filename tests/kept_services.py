"""`python kept_services.py HOME SERVICES`: keep small services, given as JSON, as `floodmark up` does."""

import json
import os
import signal
import sys
from pathlib import Path

from flows import interrupt
from flows.up import keep_up
from infra.services import Plan, Service
from training.errors import FloodmarkError


def tell(service: str, state: str, words: str) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps([service, state, words]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    home, services = Path(sys.argv[1]), json.loads(sys.argv[2])
    known = tuple(Service(**{**item, "command": tuple(item["command"])}) for item in services)
    interrupt.listen(signal.SIGINT, signal.SIGTERM)
    try:
        keep_up(Plan(servers=known, others=(), environment=os.environ), home, "127.0.0.1", None, tell)
    except KeyboardInterrupt:
        tell("all", "stopped", "")
    except FloodmarkError as error:
        sys.exit(f"error: {error}")
