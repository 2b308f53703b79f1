"""The peer as a process: given jobs, its answers read."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.sides.peer import PeerPackage
from benchmarks.sides.process import Side
from strop.trajectory.model import Group

How = Literal["ask", "record", "replay", "show"]
SCRIPT = Path(__file__).with_name("peer.py")
PACKAGE = PeerPackage(name="openpipe-art", module="art.rewards", variable="STROP_PEER_PYTHON")


class Peer(Side):
    """RULER under that Python. One job at a time."""

    def __init__(self, python: str) -> None:
        super().__init__(python, [python, "-I", str(SCRIPT)], environment())

    def score(
        self, groups: Sequence[Group], how: How, *, base_url: str = "", at_once: int = 1
    ) -> Mapping[str, Any]:
        """The peer's answer to one job; what it holds is said in peer.py."""
        attempts = [[list(t.messages) for t in group.trajectories] for group in groups]
        return self.ask(
            json.dumps({"groups": attempts, "how": how, "base_url": base_url, "at_once": at_once})
        )


def environment() -> dict[str, str]:
    """Ours without what would send the peer's requests elsewhere, or let it report home."""
    kept = {key: value for key, value in os.environ.items() if not key.upper().endswith("_PROXY")}
    return {
        **kept,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "WEAVE_DISABLED": "true",
        "WANDB_MODE": "disabled",
    }
