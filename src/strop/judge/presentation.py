"""What is shown to the judge, in which orders: the calls that one group needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strop.judge.orders import balanced, parts
from strop.judge.prompt import PROMPT_VERSION, Kind, Prompt, present
from strop.judge.rubric import rubric_hash
from strop.judge.settings import JudgeSettings
from strop.judge.sheet import Sheet
from strop.judge.view import View
from strop.seeds import generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """One showing of a part of the group: `number` among all of the group's, `part` it shows.

    `shown` maps the ids in the prompt to the trajectory ids that each stands for; `content` is what
    the reply depends on, for the cache: the nonce, fresh in every prompt, is not in it.
    """

    number: int
    part: int
    kind: Kind
    prompt: Prompt
    shown: Mapping[str, tuple[str, ...]]
    content: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A group's sheet and the parts of it that are shown together, each in its first order."""

    sheet: Sheet
    rubric: str
    settings: JudgeSettings
    parts: Sequence[tuple[int, ...]]

    def first_round(self) -> list[Presentation]:
        """Every part in `settings.orders` orders."""
        return self._presentations(range(len(self.parts)), 0, self.settings.orders)

    def second_round(self, contested: Sequence[int]) -> list[Presentation]:
        """The contested parts in the further orders, up to `settings.max_orders`."""
        return self._presentations(contested, self.settings.orders, self.settings.max_orders)

    def _presentations(self, chosen: Sequence[int], start: int, stop: int) -> list[Presentation]:
        return [
            self._present(part, place, order)
            for part in chosen
            for place, order in enumerate(balanced(self.parts[part], stop))
            if place >= start
        ]

    def _present(self, part: int, place: int, order: tuple[int, ...]) -> Presentation:
        number = place * len(self.parts) + part
        rng = generator(self.settings.seed, "presentation", self.sheet.digest, number)
        kind: Kind = "digit" if self.settings.mode == "logprob" else "scores"
        entries = [self.sheet.entries[index] for index in order]
        return Presentation(
            number=number,
            part=part,
            kind=kind,
            prompt=present(self.sheet, order, self.rubric, rng, kind=kind),
            shown={str(at): entry.ids for at, entry in enumerate(entries, start=1)},
            content=(
                PROMPT_VERSION, kind, rubric_hash(self.rubric), self.settings.max_tokens,
                self.sheet.context, [entry.body for entry in entries],
                [*self.sheet.context_images, *(entry.images for entry in entries)],
            ),
        )  # fmt: skip


def make_plan(sheet: Sheet, rubric: str, settings: JudgeSettings, view: View) -> Plan:
    """The plan for a group; parts are smaller than `settings.most_at_once` where the prompt has less room."""
    rng = generator(settings.seed, "orders", sheet.digest)
    most = _most_that_fit(sheet, settings.most_at_once, view.group_tokens)
    return Plan(
        sheet=sheet,
        rubric=rubric,
        settings=settings,
        parts=parts(len(sheet.entries), settings.mode, most, rng),
    )


def _most_that_fit(sheet: Sheet, most: int, tokens: int) -> int:
    """How many entries, the longest ones, go into one prompt. Two always do: the view cuts them so."""
    longest = sorted(range(len(sheet.entries)), key=lambda i: -len(sheet.entries[i].body))
    count = min(most, len(longest))
    while count > 2 and sheet.tokens(longest[:count]) > tokens:
        count -= 1
    return most if count == len(longest) else count
