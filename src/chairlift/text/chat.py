"""Chat messages to the text a model was trained on, by the template that came with the model.

A template may be in a GGUF file, in tokenizer_config.json (one, or several by name), in chat_template.jinja, or in a
file the user names with --chat-template. See `chairlift.text.sandbox` for the dialect and what a template may spend,
and `chairlift.text.prompt` for why a message cannot write control tokens.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import jinja2

from chairlift.core.errors import RequestError, TokenizerError
from chairlift.text.from_directory import TOKENIZER_CONFIG, read_json
from chairlift.text.prompt import Prompt, Shield
from chairlift.text.sandbox import MAX_CHARACTERS, BudgetError, ChatEnvironment
from chairlift.text.tokenizer import Tokenizer

_GGUF_KEY: Final = "tokenizer.chat_template"
_DEFAULT: Final = "default"
_WITH_TOOLS: Final = "tool_use"
_RESERVED: Final = frozenset({"messages", "tools", "add_generation_prompt"})
_PROBE: Final = "chairlift-probe"
_FLAG: Final = "--chat-template FILE"


class ChatTemplate:
    """The chat template of one model. Safe to share between threads.

    Attributes:
        source: where the template came from, for messages.
        content_as_parts: the template reads a message's content as a list of parts only, not as a string.
    """

    def __init__(
        self,
        text: str,
        tokenizer: Tokenizer,
        *,
        source: str,
        tools_text: str | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile a template.

        Args:
            text: the template.
            tokenizer: whose control tokens messages must not write, and whose special strings templates use.
            source: where the text came from.
            tools_text: another template for requests that bring tools, where the model has one.
            now: the local time, for templates that write the date.

        Raises:
            TokenizerError: a syntax error in the template.
        """
        self.source = source
        self._strings = dict(tokenizer.strings)
        self._shield = Shield(tokenizer.control_tokens)
        self._environment = ChatEnvironment(now)
        self._template = self._compile(text)
        self._tools_template = self._compile(tools_text) if tools_text is not None else self._template
        self._lock = threading.Lock()
        self.content_as_parts = not self._reads(_PROBE) and self._reads([{"type": "text", "text": _PROBE}])

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], tokenizer: Tokenizer) -> Self | None:
        """The template in a GGUF file's metadata, or None where it has none.

        Raises:
            TokenizerError: a syntax error in the template.
        """
        text = metadata.get(_GGUF_KEY)
        if not isinstance(text, str):
            return None
        with_tools = metadata.get(f"{_GGUF_KEY}.{_WITH_TOOLS}")
        return cls(
            text,
            tokenizer,
            source=f"the GGUF file's {_GGUF_KEY}",
            tools_text=with_tools if isinstance(with_tools, str) else None,
        )

    @classmethod
    def from_directory(cls, folder: Path, tokenizer: Tokenizer) -> Self | None:
        """The template of a Hugging Face directory, or None where it has none; chat_template.jinja comes first.

        Raises:
            TokenizerError: a file is unreadable, a syntax error, or several templates of which none is the default.
        """
        file = folder / "chat_template.jinja"
        if file.is_file():
            return cls.from_file(file, tokenizer)
        source = str(folder / TOKENIZER_CONFIG)
        entry = read_json(folder / TOKENIZER_CONFIG).get("chat_template")
        if entry is None:
            return None
        named = {_DEFAULT: entry} if isinstance(entry, str) else _named(entry, source)
        if _DEFAULT not in named:
            raise TokenizerError(
                f"{source} has the chat templates {', '.join(sorted(named))}, and none is named {_DEFAULT}: save the "
                f"one you want to a file and start with {_FLAG}"
            )
        return cls(named[_DEFAULT], tokenizer, source=source, tools_text=named.get(_WITH_TOOLS))

    @classmethod
    def from_file(cls, path: Path, tokenizer: Tokenizer) -> Self:
        """The template in a file.

        Raises:
            TokenizerError: the file is missing or unreadable, or a syntax error in the template.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"the chat template {path} cannot be read: {error}. Check {_FLAG}") from error
        return cls(text, tokenizer, source=str(path))

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        variables: Mapping[str, object] | None = None,
        parse_special: bool = False,
    ) -> Prompt:
        """Render a conversation.

        Args:
            messages: as the OpenAI API has them: `role`, `content` (a string, None, or a list of text parts), and
                whatever else the template reads.
            add_generation_prompt: end with the opening of the assistant's turn.
            tools: function schemas the model may call.
            variables: more names for the template to read (`enable_thinking` and the like).
            parse_special: let control tokens in messages be control tokens. Only for messages you wrote yourself.

        Returns:
            The prompt for `Tokenizer.encode_prompt`.

        Raises:
            RequestError: a message is malformed, or the template refuses or fails; the message has its words.
        """
        if reserved := _RESERVED & (variables or {}).keys():
            raise RequestError(f"the template variable {min(reserved)} is set by the request itself; rename it")
        given = {
            **(variables or {}),
            "messages": [self._message(number, message) for number, message in enumerate(messages)],
            "tools": tools or None,
        }
        covered = (Shield() if parse_special else self._shield).cover(given)
        names = {**self._strings, **covered.value, "add_generation_prompt": add_generation_prompt}
        try:
            marked = self._write(self._tools_template if tools else self._template, names)
        except _FAILURES as error:
            raise RequestError(f"the chat template ({self.source}) {_verb(error)}: {error}") from error
        return Prompt(marked, covered.literals)

    def _compile(self, text: str) -> jinja2.Template:
        try:
            return self._environment.template(text)
        except _FAILURES as error:
            line = f" at line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise TokenizerError(
                f"the chat template ({self.source}) cannot be compiled{line}: {error}. "
                f"Give another with {_FLAG}, or use /v1/completions, which needs none"
            ) from error

    def _write(self, template: jinja2.Template, names: Mapping[str, object]) -> str:
        """Render with a full budget, one rendering at a time: the budget is the environment's."""
        chunks: list[str] = []
        length = 0
        with self._lock:
            self._environment.begin()
            for chunk in template.generate(names):
                length += len(chunk)
                if length > MAX_CHARACTERS:
                    raise BudgetError(f"it writes more than {MAX_CHARACTERS:,} characters")
                chunks.append(chunk)
        return "".join(chunks)

    def _reads(self, content: object) -> bool:
        """Whether a user message with this content shows up in the prompt, and as its text."""
        names = {**self._strings, "messages": [{"role": "user", "content": content}], "add_generation_prompt": True}
        try:
            prompt = self._write(self._template, names)
        except _FAILURES:
            return False
        return _PROBE in prompt and "'type'" not in prompt

    def _message(self, number: int, message: Mapping[str, object]) -> dict[str, object]:
        """A message in the form the template reads: content a string or parts, arguments of tool calls as objects."""
        if not isinstance(message.get("role"), str):
            raise RequestError(f"message {number} has no role; give it one, such as user")
        text = _content_text(number, message.get("content"))
        content: object = [{"type": "text", "text": text}] if self.content_as_parts else text
        rest = {key: value for key, value in message.items() if value is not None}
        if isinstance(calls := rest.get("tool_calls"), Sequence):
            rest["tool_calls"] = [_tool_call(number, call) for call in calls]
        return {**rest, "content": content}


def require(template: ChatTemplate | None, model: str) -> ChatTemplate:
    """The template, where a request cannot do without one.

    Raises:
        RequestError: the model has none.
    """
    if template is None:
        raise RequestError(
            f"{model} has no chat template: use /v1/completions with a prompt in the model's own format, or start "
            f"with {_FLAG}"
        )
    return template


_FAILURES: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What rendering can raise: Jinja's own errors, and Python's from an operator or method that a template misuses."""


def _verb(error: Exception) -> str:
    return "refuses these messages" if type(error) is jinja2.TemplateError else f"failed with {type(error).__name__}"


def _named(entry: object, source: str) -> dict[str, str]:
    """Templates by name, from the list form of tokenizer_config.json."""
    try:
        return {item["name"]: item["template"] for item in entry}  # type: ignore[attr-defined]
    except (TypeError, KeyError) as error:
        raise TokenizerError(
            f"chat_template in {source} is neither a string nor a list of named templates: save the template you "
            f"want to a file and start with {_FLAG}"
        ) from error


def _content_text(number: int, content: object) -> str:
    """A message's content as one string; text parts are joined by line breaks, as other servers do."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise RequestError(f"the content of message {number} is neither a string nor a list of parts")
    texts: list[str] = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        text = part.get("text") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(text, str):
            raise RequestError(
                f"part {place} of message {number} is of type {kind}; this server takes text parts only: "
                '{"type": "text", "text": ...}'
            )
        texts.append(text)
    return "\n".join(texts)


def _tool_call(number: int, call: Any) -> Any:
    """A tool call whose arguments are an object: clients send them as JSON text, templates expect what it says."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(arguments := function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(arguments or "{}")}}
    except ValueError as error:
        raise RequestError(f"the arguments of a tool call in message {number} are no JSON: {error}") from error
