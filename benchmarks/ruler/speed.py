"""Seconds for the same groups, theirs and ours in turn, against a judge that takes a fixed time to answer."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.ruler.ours import DEFAULT, ONE_CALL, Judged, Run, Tape, Way, judged
from benchmarks.ruler.process import Peer
from strop.judge import Endpoint
from strop.judge.planted import Planted
from strop.trajectory.model import Group

MODEL = "planted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Wall and CPU seconds of runs over the same groups."""

    groups: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, wall: float, cpu: float) -> None:
        """Another run."""
        self.wall.append(wall)
        self.cpu.append(cpu)

    def over(self, other: "Seconds") -> float:
        """Median over the pairs of these wall seconds divided by the other's."""
        return statistics.median(s / o for s, o in zip(self.wall, other.wall, strict=True))

    def summary(self) -> dict[str, object]:
        """Groups a second of the median run, and the range; CPU milliseconds a group of this side."""
        rates = sorted(self.groups / wall for wall in self.wall)
        return {
            "groups_a_second": round(statistics.median(rates), 1),
            "range": [round(rates[0], 1), round(rates[-1], 1)],
            "cpu_ms_a_group": round(1000 * statistics.median(self.cpu) / self.groups, 2),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Our two ways and the peer (None where it is absent), run in turn."""

    one_call: Seconds
    default: Seconds
    theirs: Seconds | None


def race(
    groups: Sequence[Group], base_url: str, at_once: int, pairs: int, run: Run, peer: Peer | None
) -> Race:
    """`pairs` rounds after one that does not count; a round is our one call, the peer, our default."""
    result = Race(
        one_call=Seconds(groups=len(groups)),
        default=Seconds(groups=len(groups)),
        theirs=None if peer is None else Seconds(groups=len(groups)),
    )
    endpoint = Endpoint(base_url, "none", MODEL)

    def ours(way: Way) -> Judged:
        done = run(judged(endpoint, groups, way, at_once))
        assert all(verdict.failure is None for verdict in done.verdicts)
        return done

    for round_ in range(pairs + 1):
        one = ours(ONE_CALL)
        other = None if peer is None else peer.score(groups, "ask", base_url=base_url, at_once=at_once)
        default = ours(DEFAULT)
        if round_ == 0:
            continue
        result.one_call.add(one.seconds, one.cpu_seconds)
        result.default.add(default.seconds, default.cpu_seconds)
        if result.theirs is not None and other is not None:
            result.theirs.add(other["seconds"], other["cpu_seconds"])
    return result


def own_time(groups: Sequence[Group], way: Way, rounds: int, run: Run) -> dict[str, float]:
    """Milliseconds a group of all that is ours, HTTP and the judge apart: the median of `rounds`."""
    tape = Tape(Planted())
    run(judged(tape, groups, way, len(groups)))
    tape.recorded = True
    done = [run(judged(tape, groups, way, len(groups))) for _ in range(rounds)]
    return {
        "cpu_ms": _milliseconds([one.cpu_seconds for one in done], len(groups)),
        "wall_ms": _milliseconds([one.seconds for one in done], len(groups)),
    }


def their_own_time(groups: Sequence[Group], base_url: str, rounds: int, peer: Peer) -> dict[str, float]:
    """The same of RULER: its completion call is replaced by one that gives what it gave before."""
    peer.score(groups, "record", base_url=base_url, at_once=len(groups))
    done = [peer.score(groups, "replay", at_once=len(groups)) for _ in range(rounds)]
    return {
        "cpu_ms": _milliseconds([one["cpu_seconds"] for one in done], len(groups)),
        "wall_ms": _milliseconds([one["seconds"] for one in done], len(groups)),
    }


def _milliseconds(seconds: Sequence[float], groups: int) -> float:
    return round(1000 * statistics.median(seconds) / groups, 2)
