"""Runs the steps of `action.yml` as GitHub would, with bash, on this machine.

`actions/setup-python` is replaced by a Python whose pip installs a folder without the index: the
packages of the tests are there already.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")

_PIP = """\
import sys, sysconfig, pathlib
*options, folder = sys.argv[1:]
assert options == ["install", "--quiet"], options
assert (pathlib.Path(folder) / "pyproject.toml").is_file(), folder
site = pathlib.Path(sysconfig.get_paths()["purelib"])
(site / "installed.pth").write_text(folder + "\\n")
"""

_PYTHON = """\
#!{real} -I
import os, pathlib, sys, venv
if sys.argv[1:4] != ["-I", "-m", "venv"]:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
venv.create(sys.argv[4], symlinks=True)
[site] = pathlib.Path(sys.argv[4]).glob("lib/python*/site-packages")
(site / "tests.pth").write_text("import site; site.addsitedir({packages!r})\\n")
(site / "pip").mkdir()
(site / "pip" / "__main__.py").write_text({pip!r})
"""


def read_action() -> dict[str, Any]:
    """The action of this repository."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    return loaded


@dataclass
class ActionRunner:
    """Runs the action in `workspace`. `folder` gets what a runner has outside of it.

    `github` is the context of that name, and `variables` the environment of the job.
    """

    folder: Path
    workspace: Path
    github: Mapping[str, str]
    variables: Mapping[str, str]
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    artifact: Path | None = None

    def run(self, **inputs: str) -> int:
        """Run all steps until one fails, and return the last exit code."""
        action = read_action()
        contexts = {f"github.{name}": value for name, value in self.github.items()}
        contexts["github.action_path"] = str(ROOT)
        contexts["runner.temp"] = str(self.folder)
        for name, declared in action["inputs"].items():
            given = inputs.get(name.replace("-", "_"), declared.get("default", ""))
            assert given or not declared.get("required"), name
            contexts[f"inputs.{name}"] = evaluate(given, contexts)
        for step in action["runs"]["steps"]:
            code = self._step(step, contexts)
            if code:
                return code
        self.outputs = {
            name: evaluate(one["value"], contexts) for name, one in action["outputs"].items()
        }
        return 0

    def _step(self, step: Mapping[str, Any], contexts: dict[str, str]) -> int:
        if "uses" in step:
            name, _, commit = step["uses"].partition("@")
            assert re.fullmatch("[0-9a-f]{40}", commit), step["uses"]
            if name == "actions/upload-artifact":
                self.artifact = Path(evaluate(step["with"]["path"], contexts))
                return 0
            assert name == "actions/setup-python"
            contexts[f"steps.{step['id']}.outputs.python-path"] = str(self._python())
            return 0
        assert step["shell"] == "bash"
        output = self.folder / "output"
        output.write_text("")
        given = {name: evaluate(value, contexts) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env={
                **self.variables,
                "RUNNER_TEMP": str(self.folder),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
                **given,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.log += done.stdout + done.stderr
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            contexts[f"steps.{step.get('id')}.outputs.{name}"] = value
        return done.returncode

    def _python(self) -> Path:
        path = self.folder / "python"
        packages = sysconfig.get_paths()["purelib"]
        real = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
        path.write_text(_PYTHON.format(real=real, packages=packages, pip=_PIP))
        path.chmod(0o755)
        return path


def evaluate(text: str, contexts: Mapping[str, str]) -> str:
    """Replace the expressions in a text by values of the contexts; a missing one is a KeyError."""
    return _EXPRESSION.sub(lambda match: contexts[match[1]], str(text))
