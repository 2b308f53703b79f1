"""Run as a script: starts a command, and ends it with all its children when whoever asked is gone.

python warden.py COMMAND…, in a process group of its own, with a pipe as stdin that its parent holds open.
A parent that is killed cannot clean up; the end of the pipe is how that is noticed. Standard library only,
as it runs without strop's packages.
"""

import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

POLL_S = 0.2
GRACE_S = 15.0


def main(command: list[str]) -> None:
    """Run the command to its end, then end what is left of the group, this process included."""
    signal.signal(signal.SIGTERM, _ignored)
    signal.signal(signal.SIGINT, _ignored)
    parent = os.getppid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    told: float | None = None
    while child.poll() is None:
        if told is None and _orphaned(parent):
            os.killpg(0, signal.SIGTERM)
            told = time.monotonic()
        if told is not None and time.monotonic() - told > GRACE_S:
            break
        if told is not None:
            time.sleep(POLL_S)
    print(f"warden: the server ended with code {child.returncode}", file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """Handled, not ignored: what is ignored here would be ignored by the command as well."""


def _orphaned(parent: int) -> bool:
    """Whether the parent is gone, after waiting a little."""
    readable, _, _ = select.select([0], [], [], POLL_S)
    return os.getppid() != parent or (bool(readable) and os.read(0, 1) == b"")


if __name__ == "__main__":
    main(sys.argv[1:])
