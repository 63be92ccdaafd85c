"""Numbers as people read them."""

from __future__ import annotations

NOT_KNOWN = "\N{EN DASH}"


def dollars(value: float | None) -> str:
    """Dollars with as many digits as say something."""
    if value is None:
        return NOT_KNOWN
    if value == 0:
        return "$0"
    if value >= 100:
        return f"${value:,.0f}"
    if value >= 1:
        return f"${value:,.2f}"
    digits = f"{value:.2g}" if value >= 0.0001 else f"{value:.1e}"
    return f"${digits}"


def seconds(value: float | None) -> str:
    """Seconds, minutes or hours."""
    if value is None:
        return NOT_KNOWN
    if value < 0.1:
        return f"{value * 1000:.0f} ms" if value else "0 s"
    if value < 10:
        return f"{value:.2g} s"
    if value < 120:
        return f"{value:.0f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600:,} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")


def seconds_of_axis(value: float) -> str:
    """The same with one unit: shorter, and exact at round numbers."""
    for size, unit in ((7200, 3600), (600, 60)):
        if value >= size:
            return f"{value / unit:,.3g} {'h' if unit == 3600 else 'min'}"
    return f"{value:.3g} s"


def count(value: float | None) -> str:
    """A count with separators."""
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def tokens(value: float | None) -> str:
    """Tokens, in thousands or millions where there are many."""
    if value is None:
        return NOT_KNOWN
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def percent(part: int, whole: int) -> str:
    """A share, "–" of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else NOT_KNOWN
