"""`agent report --output` where nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli.commands.batch import write_page
from agent.errors import ConfigurationError


def test_what_cannot_be_written_is_told_by_its_own_name() -> None:
    with pytest.raises(ConfigurationError, match=r"^--output /proc/r\.html: cannot be written"):
        write_page(Path("/proc/r.html"), iter([b"page"]))
