"""What to install or allow where bubblewrap cannot run, for the distribution at hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# ID and ID_LIKE of os-release(5), the first that is known, and how packages are installed there.
_INSTALL = {
    "debian": "apt install",
    "ubuntu": "apt install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "centos": "dnf install",
    "arch": "pacman -S",
    "alpine": "apk add",
    "opensuse": "zypper install",
    "suse": "zypper install",
    "nixos": "nix-env -iA nixos.",
    "void": "xbps-install",
    "gentoo": "emerge sys-apps/",
}

# What bwrap says when the kernel, and not an argument, is in its way.
_FORBIDDEN = ("namespace", "uid map", "loopback", "not permitted", "mount proc", "No space left")

_APPARMOR = (
    "AppArmor forbids user namespaces (Ubuntu 23.10 and later); as root: apt install "
    "apparmor-profiles && cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict "
    "/etc/apparmor.d/ && apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict, or: sysctl -w "
    "kernel.apparmor_restrict_unprivileged_userns=0"
)
_CLONE = (
    "user namespaces are off for users (Debian 10 and older, Arch's linux-hardened); as root: "
    "sysctl -w kernel.unprivileged_userns_clone=1"
)
_NUMBER = (
    "user namespaces are off (hardened Fedora and RHEL, CentOS 7); as root: sysctl -w "
    "user.max_user_namespaces=16384, and the same line in /etc/sysctl.d/90-userns.conf to keep it"
)
_KERNEL = (
    "this kernel was built without user namespaces; boot the distribution's standard kernel (Arch: "
    "linux, Alpine: linux-lts), or run as root"
)
_CONTAINER = (
    "this is a container that forbids namespaces: start it with --cap-add SYS_ADMIN --cap-add "
    "NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined (podman: --security-opt unmask=ALL), or with --privileged; in "
    "Kubernetes: securityContext.privileged"
)

_MARKS_OF_CONTAINERS = (".dockerenv", "run/.containerenv")


def advice(stderr: str, *, proc: Path = Path("/proc"), root: Path = Path("/")) -> str:
    """What to install or allow, by what bwrap said ("": it is missing) and how the kernel is set.

    `proc` and `root` are where to look.
    """
    if not stderr:
        return install("bubblewrap", root=root)
    if not any(word in stderr for word in _FORBIDDEN):
        return "check the mount point of the workspace and the paths to be shown"
    settings = proc / "sys"
    if _reads(settings / "kernel/apparmor_restrict_unprivileged_userns", "1"):
        return _APPARMOR
    if _reads(settings / "kernel/unprivileged_userns_clone", "0"):
        return _CLONE
    if _reads(settings / "user/max_user_namespaces", "0"):
        return _NUMBER
    if any((root / mark).exists() for mark in _MARKS_OF_CONTAINERS):
        return _CONTAINER
    if not (proc / "self/ns/user").exists():
        return _KERNEL
    return "check that this user may create user namespaces (unshare --user --net true)"


def install(package: str, *, root: Path = Path("/")) -> str:
    """How to install a package here, or the ways of all where this distribution is not known."""
    release = _os_release(root)
    for name in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        how = _INSTALL.get(name) or _INSTALL.get(name.partition("-")[0])
        if how:
            between = "" if how.endswith(("/", ".")) else " "
            return f"install the package {package}: {how}{between}{package}"
    return f"install the package {package} (apt, dnf, pacman, zypper, apk: {package})"


def _os_release(root: Path) -> Mapping[str, str]:
    for place in ("etc/os-release", "usr/lib/os-release"):
        try:
            lines = (root / place).read_text("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        fields = (line.partition("=") for line in lines)
        return {name.strip(): value.strip().strip("\"'") for name, _, value in fields}
    return {}


def _reads(setting: Path, value: str) -> bool:
    try:
        return setting.read_text(encoding="ascii").strip() == value
    except OSError:
        return False
