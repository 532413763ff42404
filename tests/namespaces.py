"""Hosts for real on one machine: network namespaces on a private bridge, each with an address and an sshd.

Everything is made here and removed again: the bridge, the namespaces with their links (iproute2), keys and
daemons (OpenSSH, none of whose files under /etc/ssh is read). It needs root.
"""

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from infra.launch_settings import LaunchSettings
from processes import alive

PROGRAMS = ("ip", "ssh", "ssh-keygen", "sshd")
PORT = 2222
SSHD = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
# The namespace of mounts that `ip netns exec` makes holds the /run/sshd that sshd wants, and a name.
START = (
    "hostname {name} && mount --bind {hosts} /etc/hosts && mount -t tmpfs tmpfs /run && "
    "mkdir -m 755 /run/sshd && exec {sshd} -D -e -f {config}"
)


@dataclass(frozen=True, slots=True)
class NamespaceHost:
    """A host: the name of its network namespace, its address, and its sshd."""

    name: str
    address: str
    daemon: "subprocess.Popen[bytes]"

    def processes(self) -> list[psutil.Process]:
        """Return every living process in the namespace, its sshd and the connections that it serves aside."""
        found = []
        for pid in run("ip", "netns", "pids", self.name).split():
            with suppress(psutil.NoSuchProcess):
                if (process := psutil.Process(int(pid))).name() != "sshd" and alive(process):
                    found.append(process)
        return found

    def links(self) -> list[str]:
        """Return the addresses that the namespace has."""
        lines = run("ip", "-n", self.name, "-brief", "-4", "address").splitlines()
        return [address for line in lines for address in line.split()[2:]]

    def kill(self) -> None:
        """End the host at once, as if its power was cut: sshd and everything else in it."""
        while pids := run("ip", "netns", "pids", self.name).split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            self.daemon.poll()
            time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class PrivateNetwork:
    """Hosts on a bridge, on which this machine has `address` and the interface `bridge`."""

    bridge: str
    address: str
    hosts: tuple[NamespaceHost, ...]
    folder: Path

    def settings(self, ranks: int, **more: object) -> LaunchSettings:
        """Return how these hosts are reached."""
        return LaunchSettings(
            ranks=ranks,
            ssh_port=PORT,
            ssh_identity_file=self.folder / "user_key",
            ssh_known_hosts=self.folder / "known_hosts",
            **more,  # type: ignore[arg-type] # fields of LaunchSettings
        )


@contextmanager
def private_network(folder: Path, hosts: int) -> Iterator[PrivateNetwork]:
    """Make `hosts` hosts, with their keys in the new folder `folder`; skip the test where that cannot be."""
    require_namespaces()
    folder.mkdir(mode=0o700)
    for name in ("host_key", "user_key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    bridge, network = f"fm{secrets.token_hex(3)}", f"10.{random.randint(200, 254)}.{random.randint(0, 254)}"  # noqa: S311 - no secret
    with ExitStack() as stack:
        run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(run, "ip", "link", "delete", bridge)
        run("ip", "address", "add", f"{network}.1/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        made = tuple(
            stack.enter_context(_host(folder, bridge, number, f"{network}.{number}"))
            for number in range(2, 2 + hosts)
        )
        key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text("".join(f"[{host.address}]:{PORT} {key}" for host in made))
        yield PrivateNetwork(bridge, f"{network}.1", made, folder)


@contextmanager
def _host(folder: Path, bridge: str, number: int, address: str) -> Iterator[NamespaceHost]:
    name, link = f"{bridge}-{number}", f"{bridge}-v{number}"
    with ExitStack() as stack:
        run("ip", "netns", "add", name)
        stack.callback(run, "ip", "netns", "delete", name)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", link, "master", bridge, "up")
        for device in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", device, "up")
        run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        config = folder / f"sshd-{number}.config"
        config.write_text(SSHD.format(port=PORT, address=address, folder=folder))
        hosts = folder / f"hosts-{number}"
        hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
        start = START.format(name=name, hosts=hosts, sshd=shutil.which("sshd"), config=config)
        with (folder / f"sshd-{number}.log").open("wb") as log:
            daemon = subprocess.Popen(
                ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", start],  # noqa: S607
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        host = NamespaceHost(name, address, daemon)
        stack.callback(daemon.wait)
        stack.callback(host.kill)
        _wait_for(host)
        yield host


def _wait_for(host: NamespaceHost) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host.address, PORT), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"sshd does not listen on {host.address}:{PORT}")


def require_namespaces() -> None:
    """Skip the test where network namespaces or OpenSSH are not to be had; a skip fails in CI."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not found; apt-get install iproute2 openssh-server openssh-client")
    probe = f"fm{secrets.token_hex(3)}"
    command = ["ip", "netns", "add", probe]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"a network namespace cannot be made here: {made.stderr.strip()}")
    run("ip", "netns", "delete", probe)


def run(*command: str) -> str:
    """Run a command and return what it prints; its complaint is in the error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
