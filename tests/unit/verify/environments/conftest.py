from __future__ import annotations

from pathlib import Path

import pytest

from agent.verify.environments.building import HostPython, Recipe, find_python
from tests.support.wheels import make_wheel


@pytest.fixture(scope="session")
def host() -> HostPython:
    return find_python("")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "tiny", "1.0", {"tiny.py": "value = 1\n"}, requires=("smaller",))
    make_wheel(folder, "smaller", "2.0", {"smaller.py": ""})
    (folder / "sourced-1.0.tar.gz").write_bytes(b"not an archive")
    return folder


@pytest.fixture(scope="session")
def recipe(host: HostPython, wheels: Path) -> Recipe:
    return Recipe(host, ("tiny==1.0",), index="none", find_links=(str(wheels),))


# Answers `-I -m venv DIR`, `-I -m pip install ... -- PACKAGES` and `-I -c CODE`.
_SCRIPT = r"""#!/bin/sh
if [ "$2" = -S ]; then echo 3.11.9; echo "$0"; exit; fi
case "$3" in
  venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; exit ;;
  pip) echo "$*" ;;
  *) echo '["tiny==1.0"]'; exit ;;
esac
case "$*" in
  *sourced) echo "ERROR: No matching distribution found for sourced" ;;
  *chatty) echo "ERROR: first"; echo "ERROR: Cannot install: $(printf %0999d 0)"
    echo "Traceback" ;;
  *endless) exec sleep 60 ;;
  *shown) env; exit ;;
  *) exit 0 ;;
esac
exit 1
"""


@pytest.fixture
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe whose Python is a script that plays venv and pip."""
    script = tmp_path_factory.mktemp("scripted") / "python"
    script.write_text(_SCRIPT)
    script.chmod(0o755)
    python = HostPython(script, "3.11.9")
    return Recipe(python, ("tiny==1.0",), index="none", find_links=("/wheels",))
