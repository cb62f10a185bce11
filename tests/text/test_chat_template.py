"""Chat templates: rendered as transformers renders them, and contained when they are hostile."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from datetime import datetime

import pytest

from pagoda.core.errors import InvalidRequest, TemplateError
from pagoda.text import template_budget
from pagoda.text.chat_template import GENERIC_TEMPLATE, ChatTemplate
from pagoda.text.template_budget import TemplateBudget, TemplateLimits, spending
from pagoda.text.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "Hello <b>&\n world"}]


def render(source: str, **extra: object) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO, **extra)


def test_blocks_are_trimmed_and_special_tokens_are_known() -> None:
    source = (
        "{{ bos_token }}\n{% for m in messages %}\n"
        "    {% if m.role == 'user' %}\n[{{ m['content'] }}]{% endif %}\n{% endfor %}\n"
    )
    assert render(source) == "<s>\n[Hello <b>&\n world]"


def test_json_is_written_without_html_escapes_and_in_order() -> None:
    tools = [{"b": "<é>", "a": [1, None, True]}]
    assert ChatTemplate("{{ tools | tojson }}").render(HELLO, tools=tools) == '[{"b": "<é>", "a": [1, null, true]}]'
    assert (
        ChatTemplate("{{ tools[0].a | tojson(indent=2) }}").render(HELLO, tools=tools) == "[\n  1,\n  null,\n  true\n]"
    )


def test_loop_controls_namespaces_macros_and_generation_blocks() -> None:
    source = (
        "{% macro shout(text) %}{{ text | upper }}{% endmacro %}"
        "{% set ns = namespace(count=0) %}"
        "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}"
        "{% set ns.count = ns.count + x %}{% endfor %}"
        "{% generation %}{{ shout('sum') }}{% endgeneration %}={{ ns.count }} {{ loop is defined }}"
    )
    assert render(source) == "SUM=8 False"


def test_loop_variables_are_those_of_jinja() -> None:
    source = (
        "{% for x in 'abc' %}{{ loop.index }}{{ loop.first }}{{ loop.last }}"
        "{{ loop.length }}{{ loop.previtem }} {% endfor %}"
    )
    assert render(source) == "1TrueFalse3 2FalseFalse3a 3FalseTrue3b "


def test_a_collection_of_garbage_is_not_charged_to_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large process takes long for it, and it may fall into the rendering of anybody's template."""
    clock = [0.0]
    monkeypatch.setattr(template_budget.time, "thread_time", lambda: clock[0])

    def slow_collector(phase: str, _info: dict[str, int]) -> None:
        clock[0] += 0.4 if phase == "start" else 0.0

    budget = TemplateBudget(TemplateLimits(), 0)
    try:
        with spending(budget):
            gc.callbacks.append(slow_collector)
            gc.collect()
            budget.check_time()
            gc.collect()
            gc.collect()
            with pytest.raises(TemplateError, match="took more than 250 ms"):
                gc.collect()
                budget.check_time()
    finally:
        gc.callbacks.remove(slow_collector)
    assert budget.collector_runs not in gc.callbacks


def test_plain_formatting_is_allowed() -> None:
    assert render("{{ '%s is %d' % ('x', 3) }} {{ '{} {name}'.format(1, name='n') }}") == "x is 3 1 n"


def test_dates_are_todays() -> None:
    assert render("{{ strftime_now('%Y') }}") == datetime.now().strftime("%Y")


def test_the_template_may_refuse() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_broken_syntax_is_a_template_error() -> None:
    with pytest.raises(TemplateError, match="not valid"):
        ChatTemplate("{% for x in %}")


def test_caller_variables_reach_the_template_but_not_the_engines_own_names() -> None:
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"
    with pytest.raises(InvalidRequest, match="chat_template_kwargs"):
        render("", raise_exception=1)


def test_only_plain_data_enters() -> None:
    with pytest.raises(InvalidRequest, match="messages: holds a object"):
        ChatTemplate("").render([{"role": "user", "content": object()}])


def test_a_missing_template_is_an_error_unless_a_generic_one_is_asked_for() -> None:
    tokenizer = Tokenizer.__new__(Tokenizer)
    tokenizer.chat_template, tokenizer.template_variables = None, {}
    with pytest.raises(TemplateError, match="base model"):
        ChatTemplate.of_tokenizer(tokenizer)
    assert ChatTemplate.of_tokenizer(tokenizer, generic=True).source == GENERIC_TEMPLATE
    assert ChatTemplate(GENERIC_TEMPLATE).render([{"role": "user", "content": " hi "}]) == "User: hi\n\nAssistant:"


# Ways out of the sandbox: attributes of Python's object model, by every spelling.
ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ().__class__.__base__.__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ messages | attr('__init__') | attr('__globals__') }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['__builtins__'] }}",
    "{{ strftime_now.__code__ }}",
    "{{ range.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__.os }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ lipsum.__globals__.os.popen('id').read() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "{{ '{a.__class__}'.format_map({'a': messages}) }}",
    "{{ ('{0.__cla' ~ 'ss__}') .format(1) }}",
    "{{ ['{0.__class__}'] | map('format', messages) | list }}",
    "{{ [messages] | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ [messages] | groupby('__class__') }}",
    "{{ messages | sum(attribute='__class__') }}",
    "{% for x in (1).__class__.__subclasses__() %}{{ x }}{% endfor %}",
    "{% set x = ''.join %}{{ x.__self__.__class__ }}",
    "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages.clear() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'base' %}",
    "{{ config }}{{ request.application.__globals__ }}",
    "{{ ''.encode('utf-16') }}",
    "{{ (1).to_bytes(4, 'big') }}",
    "{{ {}.fromkeys([1, 2]) }}",
    "{{ 'a'.translate({97: 'b'}) }}",
]


def grown(start: str, step: str, use: str = "{{ ns.x }}") -> str:
    """A template that replaces a value ninety-nine times by something twice as large."""
    return f"{{% set ns = namespace(x={start}) %}}{{% for i in range(99) %}}{step}{{% endfor %}}{use}"


# Ways to take time or memory: each would cost seconds or gigabytes without a guard.
BOMBS = [
    "{{ 'a' * 10 ** 9 }}",
    "{{ 10 ** 9 * 'a' }}",
    "{{ [0] * 10 ** 9 }}",
    "{{ (0,) * 10 ** 9 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 9 ** 9 ** 999 }}",
    grown("9", "{% set ns.x = ns.x * ns.x %}", "{{ ns.x }}"),
    grown("'a'", "{% set ns.x = ns.x + ns.x %}", "{{ ns.x }}"),
    grown("'a'", "{% set ns.x = ns.x ~ ns.x %}", "{{ ns.x }}"),
    grown("[1]", "{% set ns.x = ns.x + ns.x %}", "{{ ns.x }}"),
    grown("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x == ns.x[0] }}"),
    grown("(1,)", "{% set ns.x = (ns.x, ns.x) %}", "{{ {ns.x: 1} }}"),
    grown("{}", "{% set ns.x = {1: ns.x, 2: ns.x} %}", "{{ ns.x | tojson }}"),
    grown("{}", "{% set ns.x = dict(a=ns.x, b=ns.x) %}", "{{ ns.x }}"),
    grown("'a'", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}", ""),
    "{% macro m(d) %}{% if d %}{{ m(d - 1) }}{{ m(d - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(d) %}{% if d %}{{ m(d - 1, varargs, varargs) }}{% endif %}{% endmacro %}{{ m(60, 1, 1) }}",
    "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(9999999999) %}{% endfor %}",
    "{{ range(99999) | list | length }}{% for a in range(9999) %}{{ range(99999) | list | length }}{% endfor %}",
    "{% for a in range(9999) %}{{ range(99999) | sum }}{% endfor %}",
    "{% for a in range(99999) %}{{ 'abcdefgh' * 99999 }}{% endfor %}",
    "{% set x %}{% for a in range(99999) %}" + "text " * 999 + "{% endfor %}{% endset %}",
    "{% for x in [1] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{{ 'a' | center(10 ** 9) }}",
    "{{ 'a'.center(10 ** 9) }}{{ 'a'.ljust(10 ** 9) }}{{ 'a'.zfill(10 ** 9) }}",
    "{{ ('\\t' * 9999).expandtabs(10 ** 6) }}",
    "{{ ('a' * 9999) | replace('a', 'b' * 99999) }}",
    "{{ ('a' * 9999).replace('a', 'b' * 99999) }}",
    "{{ ('\\n' * 9999) | indent(10 ** 6, true) }}",
    "{{ ('b' * 99999).join('a' * 9999) }}",
    "{{ ('a' * 9999) | join('b' * 99999) }}",
    "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "{{ [1] | slice(10 ** 9, 'x') | list }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10 ** 9, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "{{ messages | tojson(indent=10 ** 9) }}",
    "{{ range(9999) | list | tojson(separators=(',' * 99999, ':')) }}",
    "{{ strftime_now('%1000000000d') }}",
    "{{ [[1] * 9999] * 99 | sum(start=[]) }}",
    "{% set s = 'a' * 999999 %}{% set t = s + 'b' %}{% for a in range(99999) %}{{ s == t[:-1] }}{% endfor %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    try:
        shown = render(source)
    except TemplateError as error:
        shown = str(error)
        assert "\n" not in shown
    assert not any(leak in shown for leak in ("<class", "<module", "<function", "uid=", "0x", "root:"))


@pytest.mark.parametrize("change", ["update(role='system')", "pop('role')", "clear()", "setdefault('a', 1)"])
def test_messages_are_never_changed(change: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(TemplateError):
        ChatTemplate("{{ messages[0]." + change + " }}").render(messages)
    assert messages == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("source", BOMBS)
def test_no_template_outspends_its_budget(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            render(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def test_limits_hold_on_other_threads() -> None:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            render(BOMBS[19])
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(faults[0], TemplateError)


def test_processor_time_is_bounded() -> None:
    limits = TemplateLimits(cpu_seconds=0.05, max_iterations=10**12)
    template = ChatTemplate(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", limits=limits
    )
    start = time.thread_time()
    with pytest.raises(TemplateError, match="50 ms"):
        template.render(HELLO)
    # Not a measure of speed: without the limit this takes more than ten minutes.
    assert time.thread_time() - start < 30


def test_output_is_bounded_in_bytes_not_characters() -> None:
    limits = TemplateLimits(max_output_bytes=10)
    assert ChatTemplate("{{ 'é' * 5 }}", limits=limits).render([]) == "é" * 5
    with pytest.raises(TemplateError, match="more than 10 bytes"):
        ChatTemplate("{{ 'é' * 6 }}", limits=limits).render([])


def test_a_source_that_is_too_long_is_refused() -> None:
    with pytest.raises(TemplateError, match="longer than"):
        ChatTemplate("x" * ((1 << 16) + 1))


def test_a_source_with_too_many_parts_is_refused() -> None:
    with pytest.raises(TemplateError, match="parts"):
        ChatTemplate("{{ " + "a<b," * 9000 + "0 }}")


@pytest.mark.parametrize("source", ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{{ " + "not " * 9999 + "1 }}"])
def test_deep_nesting_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source)
