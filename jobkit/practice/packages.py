"""The distribution's packages that a practice cluster needs, and the apt line that installs them."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.shell import check, run

PACKAGES = {
    "slurm": {
        "slurmctld": "slurmctld",
        "slurmd": "slurmd",
        "slurmdbd": "slurmdbd",
        "sbatch": "slurm-client",
        "munged": "munge",
        "mariadbd": "mariadb-server",
    },
    "sge": {
        "sge_qmaster": "gridengine-master",
        "sge_execd": "gridengine-exec",
        "qsub": "gridengine-client",
    },
}  # the package of each program that is started, in Debian and Ubuntu
PLUGINS = {"slurm": ("slurm-wlm-mysql-plugin", "*/slurm-wlm/accounting_storage_mysql.so")}
"""A package without a program, and the file below ``/usr/lib`` that it installs."""
FOLDERS = "/usr/sbin", "/sbin"  # of the daemons; a user's PATH on Debian lacks them
GRID_ENGINE = "/usr/lib/gridengine"
"""Its programs. Debian's commands in /usr/bin are shell scripts that first ask the C preprocessor for the
architecture, which takes 40 ms (``time /usr/share/gridengine/util/arch``)."""
KEEP_STOPPED = "/usr/sbin/policy-rc.d"
INSTALL_LOCK = "/run/lock/jobkit-apt.lock"
"""Held while packages are installed: the first of two would remove the file above from under the second."""


def search_path() -> str:
    """Return ``PATH`` with the folders of the daemons, and Grid Engine's programs before its scripts."""
    return os.pathsep.join(dict.fromkeys((GRID_ENGINE, *os.get_exec_path(), *FOLDERS)))


def missing(scheduler: str) -> list[str]:
    path = search_path()
    lacking = [name for program, name in PACKAGES[scheduler].items() if not shutil.which(program, path=path)]
    if scheduler in PLUGINS:
        package, pattern = PLUGINS[scheduler]
        lacking += [] if any(Path("/usr/lib").glob(pattern)) else [package]
    return lacking


def require(scheduler: str) -> None:
    if not (lacking := missing(scheduler)):
        return
    if shutil.which("apt-get"):
        sudo = "" if os.geteuid() == 0 else "sudo "
        hint = (
            f"{sudo}apt-get install -y --no-install-recommends {' '.join(lacking)}\n"
            f"  (or: jobkit practice up {scheduler} --install, which runs it)"
        )
    else:
        hint = (
            "a practice cluster needs Debian or Ubuntu: use a container or a virtual machine with one"
            " (docker run -it debian:12), with these packages"
        )
    raise JobkitError(
        f"these packages are not installed: {' '.join(lacking)}", hint=hint, exit_code=ExitCode.USAGE
    )


def install(scheduler: str) -> None:
    if not shutil.which("apt-get"):
        require(scheduler)
    if lacking := missing(scheduler):
        apt_install(lacking)


def apt_install(packages: list[str]) -> None:
    """Install packages with apt-get; as another user than root, through sudo.

    The packages start no daemon: a practice cluster needs none, and Grid Engine's would make this machine a
    cluster. If another process installs packages, wait for it: apt-get itself waits for the lock of dpkg only
    (``DPkg::Lock::Timeout``), not for that of its lists (seen in apt 2.6).
    """
    script = (
        "set -e; export DEBIAN_FRONTEND=noninteractive LC_ALL=C\n"
        f"exec 9>{INSTALL_LOCK}; flock 9\n"
        f"if [ ! -e {KEEP_STOPPED} ]; then trap 'rm -f {KEEP_STOPPED}' EXIT\n"
        f"printf '#!/bin/sh\\nexit 101\\n' >{KEEP_STOPPED}; chmod 755 {KEEP_STOPPED}; fi\n"
        "command -v debconf-set-selections >/dev/null &&"
        " echo gridengine-common shared/gridengineconfig boolean false | debconf-set-selections\n"
        'apt() { until said=$(apt-get "$@" 2>&1); do case $said in\n'
        "*'Could not get lock'*) sleep 1 ;; *) echo \"$said\" >&2; exit 100 ;; esac; done; }\n"
        f"apt update -qq; apt install -y -qq --no-install-recommends {shlex.join(packages)}"
    )
    root = () if os.geteuid() == 0 else ("sudo", "-n")
    if root and not shutil.which("sudo"):
        raise JobkitError(
            f"only root installs packages, and there is no sudo: {' '.join(packages)}",
            hint="as root, type this command again: it also keeps the daemons of the packages from starting",
        )
    done = run((*root, "sh", "-c", script), timeout_s=900.0)
    check(done, "the packages cannot be installed", hint="as root, type this command again")
