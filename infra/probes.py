"""What surrounds an installation, for `floodmark doctor`; every probe is short and changes nothing."""

import email.utils
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from packaging.requirements import Requirement

from infra import rank_environment
from training.errors import RetryableError

TIMEOUT_S = 5.0
BUILD_CHECK_S = 120.0
PORTS = {"http": 80, "https": 443}


def http_answer(url: str) -> tuple[str, timedelta | None]:
    """Return what `url` answers, stripped, and how far its clock is ahead; None where it tells no time.

    Raises:
        RetryableError: There is no answer, or not one of success.
    """
    try:
        response = httpx.get(url, timeout=TIMEOUT_S, follow_redirects=True)
        response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RetryableError(
            f"no good answer: {type(error).__name__}: {error}", hint="start the server, or mend its address"
        ) from error
    told = email.utils.parsedate_tz(response.headers.get("date", ""))
    if told is None:
        return response.text.strip(), None
    theirs = datetime.fromtimestamp(email.utils.mktime_tz(told), UTC)
    return response.text.strip(), theirs - datetime.now(UTC)


def require_listener(url: str) -> None:
    """Connect to the host and port of `url`, whose other parts may be a secret and are not shown.

    Raises:
        RetryableError: Nobody answers there, or it names no host.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in PORTS:
        raise RetryableError("its URL names no host, or is not http or https")
    address = parts.hostname, parts.port or PORTS[parts.scheme]
    try:
        socket.create_connection(address, timeout=TIMEOUT_S).close()
    except OSError as error:
        raise RetryableError(f"{address[0]} port {address[1]}: {error}") from error


def installed(package: str) -> str:
    """Return the version of an installed package."""
    return distribution(package).version


def misfits(package: str) -> list[str]:
    """Say which requirements of an installed `package` the environment does not meet."""
    found = []
    for text in requires(package) or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = installed(wanted.name)
        except PackageNotFoundError:
            found.append(f"{wanted.name} is missing; {wanted} is needed")
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            found.append(f"{wanted.name} is {version}; {wanted} is needed")
    return found


def require_build() -> None:
    """Load Horovod as a rank does, in a process of its own.

    Raises:
        RetryableError: It did not load; the last line of its error says why.
    """
    loaded = subprocess.run(
        [sys.executable, "-c", "import training.distributed"],
        env=rank_environment.of_ranks([]),
        capture_output=True,
        text=True,
        timeout=BUILD_CHECK_S,
        check=False,
    )
    if loaded.returncode != 0:
        said = loaded.stderr.strip().splitlines()
        raise RetryableError(said[-1] if said else f"it ended with exit code {loaded.returncode}")


def free_space(place: Path) -> tuple[int, int]:
    """Return the free and all bytes of the file system that holds `place`, or will once it is made."""
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    return usage.free, usage.total
