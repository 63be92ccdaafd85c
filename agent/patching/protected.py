"""Files that decide what runs on other machines, or what the tests mean: edited with leave only.

Patterns as in `allow` of `paths.check_path`, in the folded form in which paths are compared.
"""

from __future__ import annotations

# Continuous integration: what a service runs, with its own secrets, when the patch is pushed.
_CI = (
    *(".github/workflows/*", ".github/actions/*", ".gitea/workflows/*", ".gitea/actions/*"),
    *(".forgejo/workflows/*", ".forgejo/actions/*", ".woodpecker/*", ".woodpecker.y*ml"),
    *(".gitlab-ci.y*ml", "*.gitlab-ci.y*ml", ".gitlab/ci/*", ".circleci/*", ".buildkite/*"),
    *(".teamcity/*", ".travis.y*ml", ".cirrus.y*ml", ".cirrus.star", ".drone.y*ml"),
    *(".drone.star", ".drone.jsonnet", ".appveyor.y*ml", "appveyor.y*ml"),
    *("azure-pipelines*.y*ml", ".azure-pipelines/*", ".azuredevops/*", ".vsts-ci.y*ml"),
    *("bitbucket-pipelines.y*ml", "jenkinsfile", "jenkinsfile.*", "*.jenkinsfile", ".jenkins/*"),
    *("cloudbuild.y*ml", "cloudbuild.json", "buildspec.y*ml", ".semaphore/*", "codefresh.y*ml"),
    *(
        ".build.y*ml",
        ".builds/*",
        "wercker.y*ml",
        ".zuul.y*ml",
        ".zuul.d/*",
        ".copr/*",
        ".packit.y*ml",
    ),
    *(".harness/*", ".tekton/*", "screwdriver.yaml", ".readthedocs.y*ml", "netlify.toml"),
)

# Hooks and start-up tasks: what a developer's own tools run on checkout, commit or opening.
_HOOKS = (
    *(".githooks/*", ".git-hooks/*", ".hooks/*", ".husky/*", ".huskyrc", ".huskyrc.*"),
    *("husky.config.*", ".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml", ".overcommit.y*ml"),
    *("lefthook.y*ml", ".lefthook.y*ml", "lefthook.toml", ".lefthook.toml", ".lefthook/*"),
    *(".simple-git-hooks.*", "simple-git-hooks.*", ".vscode/tasks.json", ".vscode/launch.json"),
    *(".vscode/settings.json", ".devcontainer/*", ".devcontainer.json", ".envrc"),
)

_TESTS = ("conftest.py",)

_LOCKS = (
    *("poetry.lock", "uv.lock", "pdm.lock", "pipfile.lock", "pylock.toml", "pylock.*.toml"),
    *("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"),
    *("cargo.lock", "gemfile.lock", "composer.lock", "go.sum", "pixi.lock", "conda-lock.yml"),
    *("bun.lock", "bun.lockb", "deno.lock", "flake.lock", "mix.lock", "pubspec.lock"),
    *("gradle.lockfile", "packages.lock.json"),
)

PROTECTED: tuple[str, ...] = (*_CI, *_HOOKS, *_TESTS, *_LOCKS)
