"""A real PostgreSQL on loopback, in a folder of its own, with one database each for MLflow and Prefect."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

USER, OWNER = "postgres", "floodmark"
READY_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """Where the databases are, and the password of their owner."""

    port: int
    password: str

    @property
    def environment(self) -> dict[str, str]:
        """MLflow's and Prefect's own variables."""
        address = f"{OWNER}:{self.password}@127.0.0.1:{self.port}"
        return {
            "MLFLOW_BACKEND_STORE_URI": f"postgresql://{address}/mlflow",
            "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{address}/prefect",
        }

    def rows(self, database: str, query: LiteralString) -> list[tuple[object, ...]]:
        """Ask a database."""
        with closing(self.connect(database)) as connection:
            return list(connection.execute(query).fetchall())

    def connect(self, database: str) -> psycopg.Connection:
        """Open a connection that commits each statement."""
        address = f"host=127.0.0.1 port={self.port} user={OWNER} password={self.password} dbname={database}"
        return psycopg.connect(address, autocommit=True)


@contextmanager
def serving_postgresql() -> Iterator[Databases]:
    """Start a server by Debian's programs, as another user where we are root; end it by its own handle."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not programs:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))  # pytest's own folders are closed to other users
    with socket.create_server(("127.0.0.1", 0)) as free:
        databases = Databases(port=free.getsockname()[1], password=secrets.token_urlsafe())
    (folder / "password").write_text(databases.password)
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        for path in (folder, folder / "password"):
            os.chown(path, pwd.getpwnam(USER).pw_uid, -1)
    made: list[str | Path] = [
        "--username",
        OWNER,
        "--auth",
        "scram-sha-256",
        "--pwfile",
        folder / "password",
        "--no-sync",
    ]
    subprocess.run(
        [*as_user, programs[-1].with_name("initdb"), "--pgdata", folder / "data", *made],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    options = {
        "listen_addresses": "127.0.0.1",
        "port": databases.port,
        "unix_socket_directories": folder,
        "fsync": "off",
    }
    told = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*as_user, programs[-1], "-D", folder / "data", *told], cwd=folder, stdout=log, stderr=log
        )
    try:
        _create(databases, process, folder / "log")
        yield databases
    finally:
        process.send_signal(signal.SIGINT)  # its fast end: nobody is waited for
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _create(databases: Databases, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            maintenance = databases.connect("postgres")
            break
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL is not ready ({error}):\n{log.read_text()}")
            time.sleep(0.1)
    with closing(maintenance):
        for create in ("CREATE DATABASE mlflow", "CREATE DATABASE prefect"):
            maintenance.execute(create)
