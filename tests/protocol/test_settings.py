"""stark.toml: settings are read back as written, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import settings as settings_file
from protocol.settings import Limits, SearchSettings, Settings
from protocol.values import Role

NAME = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
SETTINGS = st.builds(
    Settings,
    tasks=st.lists(NAME, max_size=3).map(tuple),
    model=NAME,
    model_reason=NAME,
    seed=st.integers(0, 2**31),
    max_cost=st.none() | st.floats(0.01, 1e6),
    until_idle=st.booleans(),
    first_looks=st.booleans(),
    search=st.builds(SearchSettings, budget=st.integers(1, 999), epsilon=st.floats(0, 1)),
    limits=st.builds(Limits, time_s=st.floats(0.1, 100)),
)


@given(SETTINGS)
def test_settings_are_read_back_as_written(settings: Settings) -> None:
    """The TOML text gives the same settings, with any characters in the names."""
    assert settings == settings_file.parse(settings_file.to_toml(settings))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('modle = "x"', "modle"),
        ("[search]\nbudgte = 3", "budgte"),
        ('seed = "three"', "seed"),
        ("seed =", "line 1|Invalid value"),
        ("[search]\nbudget = 0", "budget"),
        ("[search]\nin_flight = 0", "in_flight"),  # no attempt would begin
        ("[search]\nepsilon = 3", "epsilon"),
        ("[search]\ntournament = 0", "tournament"),  # no node could be drawn
        ("[search]\nwindow_cap = -1", "window_cap"),
        ("max_cost = nan", "max_cost"),
        ("evaluators = -1", "evaluators"),  # the run would wait for ever
        ("tasks_at_once = -1", "tasks_at_once"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    """The ValueError is one line that names the file and the setting."""
    (tmp_path / "stark.toml").write_text(text)

    with pytest.raises(ValueError, match=reason) as caught:
        settings_file.read(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_role_without_a_model_of_its_own_uses_the_runs() -> None:
    """`--coder-model` changes the coder's model only."""
    settings = Settings(model="a", coder_model="b")

    assert {"planner": "a", "coder": "b", "debugger": "a"} == {
        role: settings.model_of(role) for role in (Role.PLANNER, Role.CODER, Role.DEBUGGER)
    }
