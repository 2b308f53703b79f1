"""What happens to who serves is told to whoever listens, from the beginning on."""

from typing import Any

from strop.engines.serving import Events


def test_events_are_kept_until_somebody_listens_and_told_once() -> None:
    events, heard = Events(), []

    def hears(kind: str, **fields: Any) -> None:
        heard.append((kind, fields))

    events("server_up", seconds=2.0)
    events("server_lost", cause="it ended")
    assert heard == []
    events.listen(hears)
    events("server_restored", seconds=3.0)
    assert heard == [
        ("server_up", {"seconds": 2.0}),
        ("server_lost", {"cause": "it ended"}),
        ("server_restored", {"seconds": 3.0}),
    ]
