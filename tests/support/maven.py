"""A Maven project that needs no network where Maven's store has its packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>sums</artifactId><version>1</version>
<properties>
  <maven.compiler.release>17</maven.compiler.release>
  <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
</properties>
<dependencies><dependency>
  <groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId>
  <version>5.10.2</version><scope>test</scope>
</dependency></dependencies>
<build><plugins>
  <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.1</version></plugin>
  <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin>
  <plugin><artifactId>maven-surefire-plugin</artifactId><version>3.2.5</version></plugin>
</plugins></build>
</project>
"""

# What the project above is built with; whoever has these has the rest.
_NEEDED = (
    "org/apache/maven/plugins/maven-surefire-plugin/3.2.5/maven-surefire-plugin-3.2.5.jar",
    "org/junit/jupiter/junit-jupiter-api/5.10.2/junit-jupiter-api-5.10.2.jar",
)


def home_with_store(folder: Path) -> Path:
    """Return a home whose package store the sandbox's own user may read.

    Its files are linked, not copied. Skips the test where the packages are missing.
    """
    store = Path.home() / ".m2" / "repository"
    if not all((store / name).is_file() for name in _NEEDED):
        pytest.skip("the packages of the test project are not in Maven's store")
    if os.geteuid() != 0:
        return Path.home()
    home = folder / "home"
    (home / ".m2").mkdir(parents=True)
    argv = ["cp", "-al", str(store), str(home / ".m2" / "repository")]
    if subprocess.run(argv, check=False, timeout=60).returncode:
        pytest.skip("Maven's store cannot be linked to a place that another user may read")
    directories = ["find", str(home), "-type", "d", "-exec", "chmod", "755", "{}", "+"]
    subprocess.run(directories, check=True, timeout=60)
    return home
