import jinja2
import pytest


def render(source):
    return jinja2.Template("{% set ns = namespace() %}" + source).render()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "12"),
        ("{% set x, ns.b = 1, 2 %}{{ x }}{{ ns.b }}", "12"),
        ("{% set ns.a, x = 1, 2 %}{{ ns.a }}{{ x }}", "12"),
        ("{% set ns.a = 1 %}{{ ns.a }}", "1"),
        ("{% set ns.a %}block{% endset %}{{ ns.a }}", "block"),
        ("{% set x, y = 1, 2 %}{{ x }}{{ y }}", "12"),
    ],
)
def test_assignment_targets(source, expected):
    assert render(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% set other = {} %}{% set other.a = 1 %}",
        "{% set other = {} %}{% set ns.a, other.b = 1, 2 %}",
        "{% set other = {} %}{% set other.a %}block{% endset %}",
    ],
)
def test_only_namespaces_take_attributes(source):
    with pytest.raises(jinja2.TemplateRuntimeError, match="non-namespace object"):
        render(source)
