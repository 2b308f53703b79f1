"""Options that name trained reward models."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from strop.app.rewarding import RewardAsked

Kind = Literal["auto", "sequence", "steps", "words"]

RewardModel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODEL",
        help="A trained reward model, folder or hub name, as a baseline beside the grades; repeatable.",
    ),
]
RewardKind = Annotated[
    Kind,
    typer.Option(
        help="Where it is read: at a conversation's end; or at a marker after each step, by its own head, "
        "or by the odds of two words. auto: as its files say."
    ),
]
RewardMarker = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What stands after each step; default: <extra_0> where it has it."),
]
RewardGood = Annotated[
    str | None, typer.Option(metavar="LABEL", help="The label, or the word, that means good.")
]
RewardBad = Annotated[str | None, typer.Option(metavar="WORD", help="The word that means bad.")]


def rewards_asked(
    models: list[str] | None, *, kind: Kind, marker: str | None, good: str | None, bad: str | None
) -> tuple["RewardAsked", ...]:
    """What the options say; they hold for every model."""
    from strop.app.rewarding import RewardAsked

    return tuple(RewardAsked(model=one, kind=kind, marker=marker, good=good, bad=bad) for one in models or ())
