"""Whatever ends a command, no key of its environment is on stderr or in its JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.cli.commands.common import DEBUG_VARIABLE, guarded, reporting
from agent.errors import ProviderError, UsageError
from agent.types.events import Event, ModelCall, Notice, StageFinished, StageStarted

KEYS = st.text("abcdefghijkXYZ0123456789_-", min_size=12, max_size=50)
ERRORS: tuple[Callable[[str], Exception], ...] = (
    ProviderError,
    UsageError,
    OSError,
    ValueError,
    lambda text: OSError(5, text, text),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS, around=st.text(max_size=20), kind=st.sampled_from(ERRORS), debug=st.booleans())
def test_no_error_shows_a_key(
    key: str,
    around: str,
    kind: Callable[[str], Exception],
    debug: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATCHSHOT_API_KEY", key)
    monkeypatch.setenv(DEBUG_VARIABLE, "1" if debug else "")

    def command() -> int:
        raise kind(f"{around}{key}{around}")

    assert guarded(command, json=True) != 0
    out, err = capsys.readouterr()
    assert key not in out + err
    assert "***" in out
    assert "agent: " in err


@pytest.mark.parametrize("quiet", [True, False])
def test_no_event_shows_a_key(
    quiet: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    key = "k3y-of-some-provider-0123456789"
    monkeypatch.setenv("SOME_PROVIDER_TOKEN", key)
    events: tuple[Event, ...] = (
        StageStarted("call", key),
        Notice(f"refused: {key[:20]}…"),
        ModelCall("chat", "m", "failed", 1.0, error=f"https://x/?key={key}"),
        StageFinished("call", 1.0, key),
    )
    with reporting(quiet=quiet, verbose=True) as reporter:
        for event in events:
            reporter(event)
    assert key[:12] not in "".join(capsys.readouterr())
