from __future__ import annotations

import pytest

from agent.verify.environments import Environment
from agent.verify.environments.building import HostPython

# Answers `-I -m venv DIR`, `-I -m pip install ... -- PACKAGES` and `-I -c CODE`.
_SCRIPT = r"""#!/bin/sh
if [ "$2" = -S ]; then echo 3.11.9; echo "$0"; exit; fi
case "$3" in
  venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; exit ;;
  pip) echo "$*" ;;
  *) echo '["tiny==1.0"]'; exit ;;
esac
case "$*" in
  *sourced) echo "ERROR: first"; echo "ERROR: No match for sourced $(printf %0999d 0)"
    echo "Traceback" ;;
  *endless) exec sleep 60 ;;
  *shown) env; exit ;;
  *) exit 0 ;;
esac
exit 1
"""


@pytest.fixture
def scripted(tmp_path_factory: pytest.TempPathFactory) -> HostPython:
    """A script that plays Python with venv and pip."""
    script = tmp_path_factory.mktemp("scripted") / "python"
    script.write_text(_SCRIPT)
    script.chmod(0o755)
    return HostPython(script, "3.11.9")


@pytest.fixture
def environment() -> Environment:
    return Environment(packages=("tiny==1.0",), index="none", find_links=("/wheels",))
