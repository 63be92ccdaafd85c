"""A shop whose table of rates a small context does not reach."""

from __future__ import annotations

# The table stands after many functions, so that a small context does not reach it.
FILLER = "".join(f"def rate_of_zone_{n}(weight):\n    return weight * {n}\n\n\n" for n in range(90))
TABLE = 'RATES = {\n    "north": 3,\n    "south": 0,\n}\n'
FILES = {
    "shop/__init__.py": "",
    "shop/rates.py": f"{FILLER}def rate(place):\n    return RATES[place]\n\n\n{TABLE}",
    "shop/names.py": "def clean(name):\n    return name.strip()\n",
    "tests/test_names.py": (
        "from shop.names import clean\n\n\ndef test_clean():\n    assert clean(' a ') == 'a'\n"
    ),
}
ISSUE = "# Parcels to Spain are free\n\nrate_of_zone_1 to rate_of_zone_5 are right.\n"
TEST = {
    "path": "tests/test_south.py",
    "content": (
        "from shop.rates import rate\n\n\ndef test_south():\n    assert rate('south') == 4\n"
    ),
}
EDIT = {"path": "shop/rates.py", "search": '    "south": 0,', "replace": '    "south": 4,'}
