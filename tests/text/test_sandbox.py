from datetime import UTC, datetime

import jinja2
import pytest
from jinja2.exceptions import SecurityError

from chairlift.text import sandbox
from chairlift.text.sandbox import BudgetError, ChatEnvironment

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


def render(template: str, **names: object) -> str:
    """Compile and render with a fresh budget."""
    environment = ChatEnvironment(lambda: NOW)
    compiled = environment.template(template)
    environment.begin()
    return compiled.render(names)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("  {% if true %}\n x\n  {% endif %}\ny", " x\ny"),
        ("{% for i in [0, 1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "02"),
        ("{% for i in [0, 1, 2] %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "0"),
        ("{{ {'b': '<é>', 'a': [1, 2.5, none]} | tojson }}", '{"b": "<é>", "a": [1, 2.5, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ '<&>' }}", "<&>"),
        ("{{ strftime_now('%d %b %Y') }}", "04 Mar 2026"),
        ("{% generation %}a{{ 1 }}{% endgeneration %}b", "a1b"),
        ("{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"),
        ("{% macro twice(x) %}{{ x ~ x }}{% endmacro %}{{ twice('ab') }}{{ twice(1) }}", "abab11"),
        ("{% for x in [[], [[], []]] recursive %}({{ loop(x) }}){% endfor %}", "()(()())"),
        ("{% for x in [] %}{% else %}none{% endfor %}", "none"),
        ("{{ 'a' ~ none ~ 1.5 ~ true ~ missing }}", "aNone1.5True"),
        ("{{ 'x' * 3 + 'y' }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ '%s-%03d' % ('a', 7) }}", "xxxy10243a-007"),
        ("{{ '{:>4}'.format('a') }}{{ 'b'.center(3) }}{{ '%4s' | format('c') }}", "   a b    c"),
        ("{{ 12345678901234 | tojson }}{{ [1, 2] + [3] }}", "12345678901234[1, 2, 3]"),
        ("{% filter upper %}a{% endfilter %}{% set x | trim %} b {% endset %}{{ x }}", "Ab"),
        ("{{ [{'a': 1}, {'a': 2}] | selectattr('a', 'equalto', 2) | list | length }}", "1"),
    ],
)  # fmt: skip
def test_the_dialect_is_that_of_chat_templates(template: str, text: str) -> None:
    """Blocks are trimmed, loops break, JSON is not escaped, generation marks vanish, and the budget changes nothing."""
    assert render(template) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'] }}{{ ''['__class__'].mro() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns.__init__ = 1 %}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(template: str) -> None:
    """Python's internals are out of reach, and messages cannot be changed."""
    messages = [{"role": "user"}]

    with pytest.raises((SecurityError, jinja2.UndefinedError)):
        render(template, messages=messages)

    assert messages == [{"role": "user"}]


def test_files_cannot_be_included() -> None:
    """There is no loader: a template sees what it is given, and nothing else."""
    for template in ("{% include '/etc/passwd' %}", "{% extends 'x' %}", "{% import 'x' as x %}"):
        with pytest.raises(TypeError, match="no loader"):
            render(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * 'a' }}",
        "{{ [1] * 1000000000 }}",
        "{{ 9 ** 9 ** 9 ** 9 ** 9 ** 9 }}",
        "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
        "{% set n = namespace(s='a') %}{% for i in range(60) %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=1000000000) }}",
        "{{ 'a'.center(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
    ],
)
def test_a_template_that_asks_for_too_much_is_stopped(monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    """Loops, recursion, and every way to build a huge string end in the budget's error, before memory is taken."""
    monkeypatch.setattr(sandbox, "MAX_TURNS", 10_000)
    with pytest.raises(BudgetError):
        render(template)


def test_a_huge_range_is_refused_by_jinja_itself() -> None:
    """range() stops at 100,000 items."""
    with pytest.raises(OverflowError, match="100000"):
        render("{{ range(1000000000) }}")


def test_each_rendering_has_the_whole_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one rendering spends is not missing in the next."""
    monkeypatch.setattr(sandbox, "MAX_TURNS", 5)
    environment = ChatEnvironment(lambda: NOW)
    template = environment.template("{% for i in range(n) %}{{ i }}{% endfor %}")

    for _ in range(3):
        environment.begin()
        assert template.render(n=5) == "01234"
    environment.begin()
    with pytest.raises(BudgetError, match="more than 5 times"):
        template.render(n=6)


def test_a_template_can_refuse() -> None:
    """raise_exception ends the rendering with the template's own words."""
    with pytest.raises(jinja2.TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")
