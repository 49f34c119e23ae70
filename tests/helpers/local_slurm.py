"""A whole Slurm on this machine, for tests: controller, one node and the service that signs their messages.

It needs root and Debian's packages slurm-wlm and munge; `why_not` says what is missing.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")

CONFIGURATION = """
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def _found(program: str) -> str | None:
    """The path of a program; services lie in folders that the search path may lack."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def why_not() -> str | None:
    """Why no Slurm can be started here, None if it can."""
    missing = [program for program in PROGRAMS if _found(program) is None]
    if missing:
        return f"Slurm is not installed: {', '.join(missing)}"
    return None if os.geteuid() == 0 else "only root can start a Slurm of its own"


def _start(program: str, *arguments: str, user: str | None = None) -> subprocess.Popen[bytes]:
    """A service in the foreground, as a child of this process."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [str(_found(program)), *arguments], user=user, stdin=nothing, stdout=nothing, stderr=nothing
    )


@contextmanager
def local_slurm(folder: Path, cores: int) -> Iterator[dict[str, str]]:
    """Run a Slurm of one node with so many cores; yields the environment in which its commands find it."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().split(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, cores=cores), encoding="utf-8")
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    services = []
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode != 0:
        for place in ("/run/munge", "/var/log/munge", "/var/lib/munge", "/etc/munge"):
            Path(place).mkdir(parents=True, exist_ok=True)
            subprocess.run(["chown", "-R", "munge:munge", place], check=True)
        services.append(_start("munged", "--foreground", "--force", user="munge"))
    services += [_start(name, "-D", "-f", str(configuration)) for name in ("slurmctld", "slurmd")]
    try:
        _wait_until_idle(environment)
        yield environment
    finally:
        for service in reversed(services):
            service.terminate()
        for service in services:
            service.wait()


def _wait_until_idle(environment: dict[str, str], seconds: float = 60.0) -> None:
    """Wait until the node takes jobs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        asked = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, check=False
        )
        if "idle" in asked.stdout:
            return
        time.sleep(0.3)
    raise RuntimeError("the node of the local Slurm does not become idle")
