"""A Slurm of one node for one test: munged, slurmctld and slurmd, as the user of the test.

The configuration is in a temporary folder.  No accounting, no control groups.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
UP_S = 30.0


def where(program: str) -> str | None:
    """Return a program's path; Debian installs the daemons outside of a user's PATH."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing() -> str:
    """Return the parts of Slurm that are not installed; "" when all of them are."""
    absent = [program for program in PROGRAMS if where(program) is None]
    return f"Slurm is not installed: no {', '.join(absent)}" if absent else ""


class PrivateSlurm:
    """The three daemons and the environment that makes Slurm's commands talk to them."""

    def __init__(self, folder: Path, nodes_cpus: int = 2) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []
        for name in ("state", "spool"):
            (folder / name).mkdir()
        # munged needs a socket that all users may reach; pytest's folders are private.
        self._munge = Path(tempfile.mkdtemp(prefix="munge-"))
        self._munge.chmod(0o755)
        key = self._munge / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(self._configuration(nodes_cpus), encoding="utf-8")

    def __enter__(self) -> PrivateSlurm:
        try:
            self._up()
        except BaseException:
            self._down()
            raise
        return self

    def _up(self) -> None:
        at = self._munge
        self._start(
            "munged", "--foreground", f"--key-file={at}/munge.key", f"--socket={at}/munge.sock",
            f"--pid-file={at}/munged.pid", f"--seed-file={at}/munge.seed",
            f"--log-file={at}/munged.log",
        )  # fmt: skip
        self._wait(lambda: (at / "munge.sock").exists(), "munged")
        configuration = str(self.folder / "slurm.conf")
        self._start("slurmctld", "-D", "-i", "-f", configuration)
        self._start("slurmd", "-D", "-f", configuration, "-N", self._host)
        self._wait(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T"), "slurmd")

    def __exit__(self, *_: object) -> None:
        self.run("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
        until = time.monotonic() + 10
        while self.jobs() and time.monotonic() < until:
            time.sleep(0.1)
        self._down()

    def _down(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self._munge)

    def run(self, program: str, *arguments: str) -> str:
        """Return what one of Slurm's commands prints."""
        done = subprocess.run(
            [where(program) or program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout

    def jobs(self, state: str = "") -> list[str]:
        """Return all jobs, or those in one state (R, PD)."""
        states = ("--states", state) if state else ()
        return self.run("squeue", "--noheader", "--format=%i", *states).split()

    def last_output(self) -> str:
        """Return the end of the daemons' output."""
        return "\n".join(
            path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.out"))
        )

    def _start(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.out").open("wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    [where(program) or program, *arguments],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )

    def _wait(self, condition, what: str) -> None:
        until = time.monotonic() + UP_S
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(f"{what} does not come up: {self.last_output()}")
            time.sleep(0.1)

    def _configuration(self, cpus: int) -> str:
        user = pwd.getpwuid(os.getuid()).pw_name
        at = self.folder
        return f"""
ClusterName=private
SlurmctldHost={self._host}(127.0.0.1)
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
AuthType=auth/munge
AuthInfo=socket={self._munge}/munge.sock
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MpiDefault=none
ReturnToService=2
KillWait=30
NodeName={self._host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
