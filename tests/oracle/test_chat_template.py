"""Chat templates against transformers' own rendering, live: the kinds of templates that models come with, written here in our own words, and
those that set-up fetched with minja, over many conversations; and templates that try to eat the machine.
"""
import itertools
import json
import shutil

import pytest
from jinja2 import TemplateError
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

import programs
from harness import BUILD, ROOT
from test_tokenizer_kinds import SMOLLM, needs_smollm

DRIVER = BUILD / "tests" / "chat_driver"
FETCHED = sorted((ROOT / ".deps" / "minja" / "templates").glob("*.jinja"))
pytestmark = pytest.mark.skipif(not FETCHED, reason="minja is not there: `make setup` fetches it")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

CHATML = """{% for turn in messages %}{% if loop.first and turn['role'] != 'system' %}{{ '<|im_start|>system\\nBe a kind machine.<|im_end|>\\n' }}{% endif %}
{{- '<|im_start|>' + turn['role'] + '\\n' + turn['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA2 = """{%- if messages[0]['role'] == 'system' -%}
    {%- set preface = '<<SYS>>\\n' ~ messages[0]['content'] ~ '\\n<</SYS>>\\n\\n' -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set preface = '' -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for turn in turns -%}
    {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('user and assistant must take turns') -}}
    {%- endif -%}
    {%- set text = preface + turn['content'] if loop.index0 == 0 else turn['content'] -%}
    {%- if turn['role'] == 'user' -%}
        {{- bos_token + '[INST] ' + text.strip() + ' [/INST]' -}}
    {%- else -%}
        {{- ' ' + text | trim + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}"""

LLAMA3 = """{{- bos_token }}
{%- if not date is defined %}{% set date = "26 Jul 2024" %}{% endif %}
{%- if messages[0].role == 'system' %}
    {%- set first = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set first = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{ "Environment: ipython\\n" }}{% endif %}
{{- "Today: " + date + "\\n\\n" + first }}
{%- if tools is not none %}
    {{- "Functions you may call:\\n\\n" }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{ raise_exception("one call at a time") }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}{{ "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""

MISTRAL = """{%- set lead = messages[0].content if messages[0].role == "system" else none %}
{%- set rest = messages[1:] if lead else messages %}
{%- set humans = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0, parts=[]) %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message.role == "user" %}
        {%- if tools is not none and message == humans[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{% else %}{{- '"' + key + '": ' + val | tojson }}{% endif %}
                    {%- if not loop.last %}{{ ", " }}{% endif %}
                {%- endfor %}
                {{- "}}" }}{% if not loop.last %}{{ ", " }}{% else %}{{ "]" }}{% endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
        {%- if loop.last and lead %}{{- "[INST] " + lead + "\\n\\n" + message.content + "[/INST]" }}{% else %}{{- "[INST] " + message.content + "[/INST]" }}{% endif %}
    {%- elif message.role == "assistant" and message.content %}
        {{- " " + message.content | trim + eos_token }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}{% set shown = call.function | tojson %}{{- shown[:-1] }}{{ ', "id": "' + call.id + '"}' }}{% if not loop.last %}{{ ", " }}{% else %}{{ "]" + eos_token }}{% endif %}{% endfor %}
    {%- elif message.role == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "n": ' ~ ns.index ~ '}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("only user, assistant and tool may follow the system message") }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('there is no place for a system message') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set who = 'model' %}{% else %}{% set who = message['role'] %}{% endif %}{{ '<start_of_turn>' + who + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""

PHI3 = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' and message['content'] %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You answer questions.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {%- set content = message.content %}
        {%- if message.role == "assistant" and '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- if loop.index0 > ns.last %}{%- set content = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content %}{% endif %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{% endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{% endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}
"""

MARKED = """{%- for message in messages %}
{{- '<' + message.role + '>' }}
{%- if message.role == 'assistant' %}{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""

ODDS = """{# a remark #}
{%- macro line(name, text, mark='-') %}{{ mark * 3 }} {{ name | upper }}: {{ text }}{% endmacro %}
{%- macro shown(value) %}
  {%- if value is string %}"{{ value }}"{% elif value is mapping %}{% for k, v in value | dictsort %}{{ k }}={{ v }}{% if not loop.last %};{% endif %}{% endfor %}{% else %}{{ value }}{% endif %}
{%- endmacro %}
{% for message in messages if message.role != 'system' %}
  {% set content = message.content or 'nothing' %}
  {{ line(message.role, content, mark=loop.cycle('+', '~')) }}
  {% if loop.previtem is defined and loop.previtem.role == message.role %}again{% endif %}
  {{ content[0] }}{{ content[-1] }}{{ content[1:3] }}{{ content[::-1][:2] }} {{ content | length }} {{ (content | length) // 3 }} {{ -7 % 3 }} {{ 7 / 2 }}
  {{ content.replace('a', 'ä').title() if content.isascii is not defined and false else content | replace('o', '0') }}
    {{ shown(message.role) }} {{ shown({'b': 1, 'a': 2.5}) }} {{ shown([1, 'x', true, none, 2.5]) }}
  {%- if 'a' in content and not 'zzz' in content and content not in ['b', ''] %} has-a{% endif %}
{% else %}
nobody
{% endfor %}
{{ messages | map(attribute='role') | join(', ') }}|{{ range(2, 9, 3) | list }}|{{ [0, ''] == [0, ''] }}|{{ 0 in [0] }}|{{ missing | default('d') }}|{{ '' | default('e', true) }}
{%- set ns = namespace(total=0) %}{% for i in range(5) %}{% if i == 3 %}{% continue %}{% endif %}{% set ns.total = ns.total + i %}{% endfor %} {{ ns.total }}
{{ {'k': [1, {'z': 'ü"\\n', 'a': {}}], 'e': []} | tojson(indent=2) }}{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}
{{- '  both ' | trim }}{{ ' x\u3000'.strip() }}{{ 'a-b-c'.split('-') | last }}{{ 3 and 'three' }}{{ none or 'other' }}{{ [] or 'empty' }}{{ {} or 'bare' }}
"""

OURS = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL, "gemma": GEMMA, "phi3": PHI3, "qwen": QWEN, "marked": MARKED, "odds": ODDS}

U = lambda text, **more: {"role": "user", "content": text, **more}
A = lambda text, **more: {"role": "assistant", "content": text, **more}
S = lambda text: {"role": "system", "content": text}
CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 3, "units": None, "deep": {"b": [1.5, True], "a": "\"q\"\n"}}}}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Says \"how\" it is.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Wo? <b>&"}, "days": {"type": "integer", "enum": [1, 2, 3]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]
CONVERSATIONS = {
    "one": [U("Hello, who are you?")],
    "system": [S("You are brief."), U("What is 2+2?")],
    "turns": [U("  padded \n"), A("sure: a\n"), U("Ünïcödé 👩‍👩‍👧 你好"), A(" ok "), U("bye")],
    "system-turns": [S("Line one\nline two"), U("a"), A("b"), U("c"), A("d")],
    "quotes": [U("it's \"quoted\" {{ not code }} {% nor this %} <|im_end|> \\n"), A("</s><think>hm\nyes</think>\n\nanswer"), U("{# #}")],
    "empty": [U("")],
    "wrong-order": [A("me first"), U("then you")],
    "twice": [U("a"), U("b")],
    "tool": [U("Weather?"), A("", tool_calls=[CALL]), {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "{\"t\": 21}"}, A("21 degrees."), U("Thanks")],
    "tool-two": [S("Use tools."), U("Both?"), A("", tool_calls=[CALL, {**CALL, "id": "call00002"}]),
                 {"role": "tool", "tool_call_id": "call00001", "content": "a"}, {"role": "tool", "tool_call_id": "call00002", "content": "b"}],
    "reasoning": [U("think"), A("done", reasoning_content="step by step"), U("more")],
    "long": [turn for i in range(40) for turn in (U(f"question {i} " + "word " * (i % 7)), A(f"answer {i}"))],
}


def ask(items):
    done = programs.run([DRIVER], input="".join(json.dumps(item) + "\n" for item in items), capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def expected(item):
    try:
        text, marks = render_jinja_template([item["messages"]], tools=item.get("tools"), chat_template=item["template"], add_generation_prompt=item["add_generation_prompt"],
                                            return_assistant_tokens_mask="endgeneration" in item["template"], **item["special_tokens"], **item.get("variables", {}))
        return text[0], marks[0] if marks else []
    except Exception as error:  # what Jinja raises is the template's choice
        return error


def compare(template, conversations):
    items = []
    for messages, tools, prompt, variables in itertools.product(conversations, (None, TOOLS), (False, True), ({}, {"enable_thinking": False})):
        items.append({"template": template, "messages": messages, "add_generation_prompt": prompt, "special_tokens": TOKENS, "variables": variables,
                      **({"tools": tools} if tools else {})})
    compared = 0
    for item, got in zip(items, ask(items), strict=True):
        want = expected(item)
        if type(want) is TemplateError:  # what the template itself refuses
            assert "error" in got, (item, got, want)
        if isinstance(want, Exception):  # minja takes some things that Jinja does not: a loop over nothing
            continue
        assert got.get("text") == want[0], f"{item['messages']!a}\n--- graft\n{got!a}\n--- transformers\n{want[0]!a}"
        text = want[0].encode()
        assert [text[a:b].decode() for a, b in got["generated"]] == [want[0][a:b] for a, b in want[1]]
        compared += 1
    return compared


@pytest.mark.parametrize("name", OURS)
def test_our_templates(name):
    assert compare(OURS[name], CONVERSATIONS.values()) >= 8


# Templates that want other variables, or tools of another form: transformers itself renders none of the conversations.
UNUSUAL = ("CohereForAI-c4ai-command-r-plus-tool_use", "fireworks-ai-llama-3-firefunction-v2")
# Templates that are rendered otherwise: `safe` makes Jinja escape, as for HTML, what is added to a text, which this one cannot have meant.
DIFFERENT = ("meetkai-functionary-medium-v3.1",)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FETCHED])
def test_fetched_templates(path):
    template = path.read_text()
    if path.stem in DIFFERENT:
        assert "text" in ask([{"template": template, "messages": CONVERSATIONS["one"], "special_tokens": TOKENS}])[0]
        return
    # The date is today's in both, unless a conversation is rendered just at midnight.
    compared = compare(template, [CONVERSATIONS[name] for name in ("one", "system", "turns", "system-turns", "tool", "reasoning")])
    assert compared >= 2 or path.stem in UNUSUAL


@needs_smollm
def test_gguf():
    tokenizer = AutoTokenizer.from_pretrained(SMOLLM.parent, gguf_file=SMOLLM.name)
    for messages in (CONVERSATIONS["one"], CONVERSATIONS["system-turns"]):
        got = ask([{"folder": str(SMOLLM), "messages": messages, "add_generation_prompt": True}])[0]
        assert got["text"] == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("where", ["file", "config", "list"])
def test_folders(where, tmp_path):
    """As transformers saves templates now, and as older files have them."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")), **TOKENS)
    tokenizer.chat_template = {"default": CHATML, "tool_use": QWEN} if where == "list" else LLAMA2
    tokenizer.save_pretrained(tmp_path)
    if where != "file":
        (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "additional_chat_templates", ignore_errors=True)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        template = tokenizer.chat_template
        config["chat_template"] = template if where == "config" else [{"name": k, "template": v} for k, v in template.items()]
        config["bos_token"] = {"content": "<s>", "__type": "AddedToken"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    messages = CONVERSATIONS["system-turns"]
    for name in ("default", "tool_use") if where == "list" else ("default",):
        got = ask([{"folder": str(tmp_path), "name": name, "messages": messages}])[0]
        assert got.get("text") == tokenizer.apply_chat_template(messages, tokenize=False, chat_template=name if where == "list" else None), got
    got = ask([{"folder": str(tmp_path), "name": "other", "messages": messages}])[0]
    assert 'no chat template called "other"' in got["error"]


HOSTILE = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "loops-over-variables": "{% set x = range(90000) | list %}{% for a in [x] %}{% for b in a %}{% for c in a %}{% for d in a %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
    "range": "{{ range(10 ** 15) | length }}", "range-zero": "{{ range(10, 0, 0) }}", "range-four": "{{ range(1, 2, 3, 4) }}", "range-backwards": "{{ range(0, -99999999, -1) }}",
    "multiplied": "{{ 'x' * 10 ** 12 }}", "multiplied-int": "{{ 'x' * 999999999999 }}", "doubled": "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "doubled-list": "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "shared": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "shared-json": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}",
    "shared-equal": "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
    "copies": "{% set s = 'x' * 1000000 %}{% set ns = namespace(s=[]) %}{% for i in range(90000) %}{% set ns.s = ns.s + [s] %}{% endfor %}",
    "replaced": "{% set s = 'x' * 100000 %}{{ s.replace('x', s) }}", "joined": "{{ range(99999) | join('x' * 1000000) }}", "indented": "{{ 'a\\nb' | indent(999999999999) }}",
    "indented-json": "{{ [[1]] | tojson(indent=99999999999) }}", "split-nothing": "{{ 'abc'.split('') }}", "replace-nothing": "{{ 'abc'.replace('', 'x') }}",
    "characters": "{% for c in 'x' * 100000000 %}{% endfor %}",
    "divided": "{{ 1 // 0 }}", "divided-true": "{{ 1 / 0 }}", "remainder": "{{ 1 % 0 }}", "negative-slice": "{{ 'abc'[99:-99:-9223372036854775807] }}{{ 1 // 0 }}",
    "macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "loop-kept": "{% set ns = namespace() %}{% for a in [1, 2] %}{% set ns.f = loop.cycle %}{% endfor %}{{ ns.f(1, 2) }}{{ 1 // 0 }}",
    "macro-in-loop": "{% set ns = namespace() %}{% for a in [1] %}{% macro f() %}x{% endmacro %}{% set ns.f = f %}{% endfor %}{{ ns.f() }}",
    "recursive": "{% for a in [[1]] recursive %}{{ loop(a) }}{% endfor %}",
    "nested-list": "{% set ns = namespace(s=[]) %}{% for i in range(90000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ 1 // 0 }}",
    "cycle": "{% set ns = namespace() %}{% set ns.a = [ns, 'x' * 1000000] %}{{ ns }}", "pop": "{{ messages.pop() }}",
    "contains-itself": "{% set x = [] %}{% set _ = x.append(x) %}{{ x }}",
    "parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", "not": "{{ " + "not " * 20000 + "1 }}", "pipes": "{{ 1" + " | string" * 10000 + " }}", "sum": "{{ 1" + " + 1" * 25000 + " }}",
    "ifs": "{% if 1 %}" * 5000 + "x", "comment": "{#" + "x" * 100000 + "#}{{ 1 // 0 }}", "spaces": "{{ 1" + " " * 100000 + " // 0 }}", "spaces-text": " " * 100000 + "x{%- if 1 %}{% endif %}{{ 1 // 0 }}",
    "unfinished": "{% for a in b", "long": "x" * 1000000, "not-closed": "{{ 'abc", "filter": "{{ 1 | nonsense }}", "include": "{% include 'x' %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates(name):
    """An error, in bounded time, and the process goes on."""
    first, second = ask([{"template": HOSTILE[name], "messages": CONVERSATIONS["one"], "limits": {"max_seconds": 2}},
                         {"template": CHATML, "messages": CONVERSATIONS["one"]}])
    assert "error" in first, str(first)[:300]
    assert first["seconds"] < 20 and second["text"].startswith("<|im_start|>system")


def test_limits_can_be_set():
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    messages = CONVERSATIONS["long"]
    for limits, said in [({"max_steps": 50}, "more than 50 steps"), ({"max_output": 100}, "more than 100 bytes"), ({"max_bytes": 1000}, "more than 1000 bytes")]:
        assert said in ask([{"template": template, "messages": messages, "limits": limits}])[0]["error"]
    assert "text" in ask([{"template": template, "messages": messages}])[0]
