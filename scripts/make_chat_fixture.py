"""Make tests/text/fixtures/chat.json: prompts rendered by `transformers`, for what `ChatTemplate` must reproduce.

Every template in tests/text/templates, and the demo model's, renders every conversation that it accepts. What a
template refuses is kept too, as null. transformers is no dependency of the project; use an environment of your own:

    pip install transformers==5.24.0 jinja2
    PYTHONPATH=src python scripts/make_chat_fixture.py
"""

import json
import sys
from pathlib import Path
from typing import Any

import jinja2
import transformers  # type: ignore[import-not-found]
from transformers.utils.chat_template_utils import render_jinja_template  # type: ignore[import-not-found]

from chairlift import demo_model
from chairlift.runners.openvino.gguf import GgufFile

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "text"
FIXTURE = FOLDER / "fixtures" / "chat.json"

USER = {"role": "user", "content": "  What is 2 < 3 & “é” 😀?\n"}
ASSISTANT = {"role": "assistant", "content": " It is true. "}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"at": "the <sky>", "n": [1, 2.5]}}}],
}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look at “it”", "parameters": {}}}]
CONVERSATIONS: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [SYSTEM, USER]},
    {"messages": [SYSTEM, USER, ASSISTANT, USER]},
    {"messages": [USER, ASSISTANT, USER, ASSISTANT, {"role": "user", "content": ""}]},
    {"messages": [USER, USER]},
    {"messages": [USER, CALL, {"role": "tool", "content": "blue"}], "tools": TOOLS},
]
STRINGS = {"bos_token": "<s>", "eos_token": "</s>"}


def as_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same conversation with every content a list of one text part."""
    return [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]


def render(template: str, conversation: dict[str, Any], *, parts: bool) -> str | None:
    """The prompt, or None where the template refuses."""
    messages = as_parts(conversation["messages"]) if parts else conversation["messages"]
    try:
        prompts, _ = render_jinja_template(
            [messages],
            chat_template=template,
            tools=conversation.get("tools"),
            add_generation_prompt=conversation.get("add_generation_prompt", True),
            **STRINGS,
        )
    except jinja2.TemplateError:
        return None
    prompt: str = prompts[0]
    return prompt


def main() -> int:
    """Render everything and write the fixture."""
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "templates").iterdir())}
    templates["demo"] = GgufFile(demo_model.locate()).metadata["tokenizer.chat_template"]
    prompts = {
        name: [render(template, conversation, parts=name == "parts") for conversation in CONVERSATIONS]
        for name, template in templates.items()
    }
    made_with = {"jinja2": jinja2.__version__, "transformers": transformers.__version__}
    document = {"made with": made_with, "strings": STRINGS, "conversations": CONVERSATIONS, "prompts": prompts}
    FIXTURE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{FIXTURE}: {FIXTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
