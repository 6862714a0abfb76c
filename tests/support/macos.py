"""Hides from its process what macOS lacks: a copy named sitecustomize.py does so before all imports."""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

LINUX = {
    os: ("sched_getaffinity", "pidfd_open", "posix_fadvise", "memfd_create", "copy_file_range", "O_PATH"),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "SIGRTMIN", "sigtimedwait"),
    socket: ("SO_PEERCRED",),
    time: ("CLOCK_BOOTTIME",),
}


def check(path: object) -> None:
    if str(path).startswith(("/proc", "/sys/")):
        raise FileNotFoundError(2, os.strerror(2), path)


def checking(call: Callable[..., Any]) -> Callable[..., Any]:
    def checked(path: Any, *more: Any, **options: Any) -> Any:
        check(path)
        return call(path, *more, **options)

    return checked


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in {"open", "os.listdir", "os.scandir"}:
        check(arguments[0])
    if event in {"socket.connect", "socket.bind"} and str(arguments[1]).startswith("\0"):
        raise FileNotFoundError(2, os.strerror(2))
    if event == "ctypes.dlsym" and arguments[1] in {"prctl", "unshare"}:
        raise AttributeError(f"dlsym(RTLD_DEFAULT, {arguments[1]}): symbol not found")


for module, names in LINUX.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in ("stat", "lstat", "readlink"):
    setattr(os, name, checking(getattr(os, name)))
sys.addaudithook(audit)
