"""`python -m infra.contained COMMAND...`: run a service that leaves nothing behind.

A request to end is passed on, so that the service may end in its own way; whatever of it is left when it has
ended, such as workers of a server that was killed, is killed. So it is out of the way of the next start.
"""

import signal
import subprocess
import sys

from training.bound_child import adopt_descendants, die_with_parent, end_descendants


def main(command: list[str]) -> int:
    """Run `command` to its end and return its exit code, 128 and the signal's number after a signal."""
    adopt_descendants()
    child = subprocess.Popen(command, preexec_fn=die_with_parent)  # noqa: PLW1509, S603 - no threads here, and a command of ours
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.terminate())
    try:
        code = child.wait()
    finally:
        end_descendants()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
