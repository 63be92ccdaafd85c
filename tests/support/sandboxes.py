"""Backends for tests: the real ones, and bubblewrap as a user without privileges."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.types import Probe, RunResult, Sandbox
from tests.support.sandbox_driver import BACKENDS, decode, execute

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

# An interpreter in /usr, visible in every sandbox: tests that need more name it themselves.
SYSTEM_PYTHON = next(
    (str(path) for path in (Path("/usr/bin/python3"), Path(sys.executable)) if path.exists()), ""
)


def require_bwrap() -> None:
    """Skip when bubblewrap cannot run here; fail instead when PATCHSHOT_REQUIRE_BWRAP is set."""
    probe = BwrapSandbox().probe()
    if probe.isolated:
        return
    if os.environ.get("PATCHSHOT_REQUIRE_BWRAP") == "1":
        pytest.fail(f"bubblewrap is required: {probe.problem}")
    pytest.skip(f"bubblewrap cannot be used: {probe.problem}")


@dataclass(frozen=True)
class Runner:
    """Runs argv in a fresh workspace of one backend."""

    backend: str
    library: Path | None = None  # a copy of the package that `nobody` can read
    sandbox: Sandbox | None = None  # one that was made already, where asking costs time

    def __call__(
        self,
        *argv: str,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: str = ".",
        report: bool = False,
        cancel_after: float | None = None,
        report_size: int = 16 * 1024 * 1024,
        **limits: float,
    ) -> RunResult:
        request = {
            "backend": self.backend.removesuffix("-user"),
            "argv": argv,
            "files": files or {},
            "environment": environment or {},
            "cwd": cwd,
            "report": report,
            "cancel_after": cancel_after,
            "limits": {"wall_seconds": 20.0, "report": report_size, **limits},
        }
        if self.library is not None:
            return self._as_nobody(request)
        return execute(request, self.sandbox)

    def probe(self) -> Probe:
        """What the backend itself says that it guarantees."""
        name = self.backend.removesuffix("-user")
        if self.library is not None:
            return Probe(**json.loads(self._driven({"probe": name})))
        return (self.sandbox or BACKENDS[name]()).probe()

    def python(self, code: str, **options: object) -> RunResult:
        """Run Python code with an interpreter that every sandbox shows."""
        return self(SYSTEM_PYTHON, "-I", "-c", code, **options)  # type: ignore[arg-type]

    def shell(self, script: str, **options: object) -> RunResult:
        return self("/bin/sh", "-c", script, **options)  # type: ignore[arg-type]

    def _as_nobody(self, request: Mapping[str, object]) -> RunResult:
        return decode(self._driven(request))

    def _driven(self, request: Mapping[str, object]) -> str:
        done = subprocess.run(
            [SYSTEM_PYTHON, "-m", "tests.support.sandbox_driver"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            cwd=self.library,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "HOST_SECRET": "hunter2"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def library_for_nobody() -> Iterator[Path]:
    """A directory with the packages that the driver imports, readable by everybody."""
    directory = Path(tempfile.mkdtemp(prefix="driver-"))
    try:
        shutil.copytree(ROOT / "sandbox", directory / "sandbox", ignore=_no_cache)
        (directory / "tests" / "support").mkdir(parents=True)
        driver = Path("tests", "support", "sandbox_driver.py")
        shutil.copy(ROOT / driver, directory / driver)
        subprocess.run(["chmod", "-R", "a+rX", str(directory)], check=True, timeout=10)
        yield directory
    finally:
        shutil.rmtree(directory)


def can_be_nobody() -> str:
    """Why tests cannot run as another user here; "" when they can."""
    if os.geteuid() != 0:
        return "only root can become another user"
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        user=NOBODY,
        timeout=20,
    )
    return "" if version.stdout.strip() == "True" else "no system Python of 3.11 or later"


_no_cache = shutil.ignore_patterns("__pycache__")
