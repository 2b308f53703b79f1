"""A judge's prompts as a person reads them: every message whole, between lines that are ours."""

from collections.abc import Mapping
from typing import Any

from strop.cli.output import emit

RULE = "─" * 8


def emit_prompts(shown: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what `strop.app.show_prompts` gives."""
    if as_json:
        emit(shown, as_json=True)
        return
    if shown["no_call"] is not None:
        print(f"group {shown['group']}: {shown['no_call']}")
        return
    for number, prompt in enumerate(shown["prompts"], start=1):
        places = ", ".join(f"{place} = {name}" for place, name in prompt["shown"].items())
        about = f"prompt {number} of {len(shown['prompts'])}, about {prompt['tokens']} tokens"
        print(f"{RULE} group {shown['group']}, {about}: {places}")
        for message in prompt["messages"]:
            print(f"{RULE} {message['role']}\n{_text(message['content'])}")
    print(RULE)


def _text(content: Any) -> str:
    """A message's text; of content in parts each on a line of its own, images by their address cut short."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] if part.get("type") == "text" else f"[{part!s:.80}…]" for part in content)
