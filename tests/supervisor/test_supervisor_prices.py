"""The prices with which a run counts: listed ones, and the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli import UsageError
from actors.supervisor.cli import flags, run_settings
from protocol import prices
from protocol import settings as settings_file
from protocol.settings import Settings

MINE = "[qwen3-coder]\ninput = 0.5\noutput = 1.5\n"
KEY = {"ANTHROPIC_API_KEY": "k"}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settle(arguments: str, environ: dict[str, str] | None = None) -> Settings:
    parsed = flags.parse_arguments(["--task", "t.py", *arguments.split()])
    return run_settings.with_prices(
        run_settings.new_run_settings(parsed, ("t",), environ or {}, ())
    )


def test_a_run_keeps_the_prices_of_its_own_models(tmp_path: Path) -> None:
    """The run counts with the prices in its stark.toml, not with the list of a later version."""
    found = settle("--model claude-opus-4-8 --coder-model claude-haiku-4-5-20251001", KEY)

    listed = prices.listed_prices()
    assert found.prices == {
        "claude-opus-4-8": listed["claude-opus-4-8"],
        "claude-haiku-4-5-20251001": listed["claude-haiku-4-5"],
    }
    settings_file.write(tmp_path, found)
    assert settings_file.read(tmp_path) == found


def test_the_users_prices_win_over_the_list(tmp_path: Path) -> None:
    """They come from --prices or from stark.toml; the flag wins over the file."""
    (tmp_path / "p.toml").write_text(MINE)
    (tmp_path / "stark.toml").write_text(
        '[prices."qwen3-coder"]\ninput = 9.0\noutput = 9.0\n'
        '[prices."claude-opus-4-8"]\ninput = 1.0\noutput = 2.0\n'
    )
    found = settle(
        "--base-url http://x --model qwen3-coder --coder-model claude-opus-4-8 --prices p.toml"
    )

    assert (0.5, 1.0) == tuple(
        found.prices[name].input for name in ("qwen3-coder", "claude-opus-4-8")
    )


def test_prices_of_an_unused_model_are_a_misspelt_name(tmp_path: Path) -> None:
    """Otherwise the run would silently count with the list's prices.

    Free models ignore the file, and one name of a used model is enough.
    """
    (tmp_path / "p.toml").write_text("[claude-sonet-4-6]\ninput = 1.0\noutput = 1.0\n" + MINE)
    with pytest.raises(UsageError, match="none of claude-sonet-4-6, qwen3-coder is a model of"):
        settle("--model claude-sonnet-4-6 --prices p.toml", KEY)

    assert settle("--model recipes --prices p.toml").prices == {}
    found = settle(
        "--model claude-opus-4-8 --base-url http://x --coder-model qwen3-coder --prices p.toml"
    )
    assert 0.5 == found.prices["qwen3-coder"].input


def test_a_cap_needs_prices() -> None:
    """One line names the model without a price and the way to give one; free models need none."""
    with pytest.raises(UsageError, match=r"--max-cost needs the price of llama.*--prices FILE"):
        settle("--base-url http://x --model llama --max-cost 1")
    assert settle("--base-url http://x --model llama").prices == {}
    assert settle("--model recipes --max-cost 1").prices == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[m]\ninput = 1.0\nouput = 2.0\n", "ouput"),
        ("[m]\ninput = 1.0\n", "missing required field `output`"),
        ("[m]\ninput = -1.0\noutput = 2.0\n", ">= 0"),
        ("[m]\ninput = nan\noutput = 2.0\n", ">= 0"),
        ("[m\ninput = 1", "line 1"),
        ("m = 3", "object"),
    ],
)
def test_a_mistake_in_a_price_file_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    """It names the flag, the file and the mistake, before anything starts."""
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        settle("--model recipes --prices p.toml")
    line = str(caught.value)
    assert reason in line
    assert line.startswith("--prices: p.toml: ")
    assert "\n" not in line


def test_an_absent_price_file_is_named() -> None:
    """A misspelt file name is a mistake; the list's prices are not used instead."""
    with pytest.raises(UsageError, match=r"can't read absent\.toml: No such file"):
        settle("--prices absent.toml")


def test_a_resumed_run_may_get_more_money_and_other_prices(tmp_path: Path) -> None:
    """Prices, cap and server address concern the user's account, not the search.

    Another effort would be another search.
    """
    old = settle("--model claude-opus-4-8 --max-cost 1", KEY)
    (tmp_path / "p.toml").write_text("[claude-opus-4-8]\ninput = 1.0\noutput = 2.0\n")

    arguments = flags.parse_arguments(
        ["--resume", "x", "--max-cost", "5", "--prices", "p.toml", "--base-url", "http://y"]
    )
    new = run_settings.with_prices(run_settings.resumed_run_settings(old, arguments))

    assert (5.0, 2.0) == (new.max_cost, new.prices["claude-opus-4-8"].output)
    assert "http://y" == new.base_url
    with pytest.raises(UsageError, match="--effort high contradicts"):
        run_settings.resumed_run_settings(
            old, flags.parse_arguments(["--resume", "x", "--effort", "high"])
        )


def test_an_effort_is_one_of_the_apis_values() -> None:
    """The server would refuse a misspelt effort in every call."""
    assert "xhigh" == settle("--effort xhigh").effort
    with pytest.raises(UsageError, match="--effort: expected low or medium"):
        settle("--effort hgih")
