from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.advice import advice, install

DENIED = "bwrap: No permissions to create new namespace"


def release(root: Path, text: str) -> Path:
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ID=debian\n", "apt install bubblewrap"),
        ("ID=ubuntu\nID_LIKE=debian\n", "apt install bubblewrap"),
        ('ID="linuxmint"\nID_LIKE="ubuntu debian"\n', "apt install bubblewrap"),
        ("ID=fedora\n", "dnf install bubblewrap"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install bubblewrap"),
        ("ID=arch\n", "pacman -S bubblewrap"),
        ("ID=alpine\n", "apk add bubblewrap"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "zypper install bubblewrap"),
        ("ID=plan9\n", "apt, dnf, pacman, zypper, apk"),
        ("", "apt, dnf, pacman, zypper, apk"),
    ],
)
def test_a_missing_package_is_installed_in_the_distributions_way(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in advice("", root=release(tmp_path, text))


def test_without_a_release_file_every_way_is_named(tmp_path: Path) -> None:
    assert install("podman", root=tmp_path).endswith("(apt, dnf, pacman, zypper, apk: podman)")


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("sys/kernel/apparmor_restrict_unprivileged_userns", "1", "bwrap-userns-restrict"),
        (
            "sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("sys/user/max_user_namespaces", "0", "user.max_user_namespaces=16384"),
        ("self/ns/user", "", "unshare --user"),
    ],
)
def test_advice_names_the_setting(tmp_path: Path, setting: str, value: str, said: str) -> None:
    (tmp_path / setting).parent.mkdir(parents=True)
    (tmp_path / setting).write_text(f"{value}\n")
    assert said in advice(DENIED, proc=tmp_path, root=tmp_path)


def test_a_kernel_without_user_namespaces_is_told(tmp_path: Path) -> None:
    assert "built without user namespaces" in advice(DENIED, proc=tmp_path, root=tmp_path)


def test_advice_does_not_blame_the_kernel_for_a_wrong_path(tmp_path: Path) -> None:
    said = advice("bwrap: Can't mkdir /usr/x: Read-only file system", proc=tmp_path, root=tmp_path)
    assert "mount point" in said


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_advice_knows_containers(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).write_text("")
    said = advice(DENIED, proc=tmp_path, root=tmp_path)
    assert "--security-opt seccomp=unconfined" in said
    assert "--privileged" in said
