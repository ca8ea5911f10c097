"""Write docs/api.md from the docstrings: `python docs/make_api.py`. A test keeps it up to date."""

import inspect
import re
from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).with_name("api.md")
MODULES = {  # a title, and where not all names are for users, those that are
    "fedres": ("Simulation, data, estimators", None),
    "fedres.bandits": ("Contextual bandits", None),
    "fedres.learners": ("Local models of any kind", None),
    "fedres.core.parties": ("FedRes.SGD as objects", ("Client", "Server")),
    "fedres.core.rule": ("What they agree on", ("Rule",)),
    "fedres.core.best_pair": ("The best pair, offline", ("JointFit", "Samples", "best_pair")),
    "fedres.core.messages": ("What travels", ("GlobalModel", "Upload")),
    "fedres.tables.storage": ("Models on disk", ("Stored", "open_folder", "write")),
    "fedres.core.theory": (
        "Bounds of the paper",
        (
            "Problem",
            "bandit_bound",
            "erm_bound",
            "explore_every",
            "mixture_bound",
            "sgd_bound",
            "sgd_full_bound",
            "sgd_step_size",
        ),
    ),
}
SECTION = re.compile(r"^(\w+)\n-+$", re.MULTILINE)


def as_markdown(docstring):
    """A NumPy docstring: parameters as a list, examples as code."""
    summary, *sections = SECTION.split(docstring)
    parts = [_with_code(summary)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title == "Examples":
            shown = re.sub(r"(^>>>.*?)(?=\n\n|\Z)", r"```python\n\1\n```", body, flags=re.S | re.M)
        else:
            shown = re.sub(r"^(\S.*)\n((?:    .*\n?|\n)+)", _item, body.strip() + "\n", flags=re.M)
        parts.append(f"**{title}**\n\n{shown.strip()}")
    return "\n\n".join(parts)


def _item(match):
    return f"- `{match[1]}`: {' '.join(match[2].split())}\n"


def _with_code(text):
    """Equations, which docstrings indent, as code."""
    blocks = re.split(r"\n\n(?=    )|(?<=\S)\n\n(?=\S)", text.strip())
    return "\n\n".join(
        f"```\n{inspect.cleandoc(block)}\n```" if block.startswith("    ") else block
        for block in blocks
    )


def entry(name, value):
    """One class or function."""
    lines = [f"### `{name}`", "", as_markdown(inspect.getdoc(value))]
    if inspect.isclass(value):
        methods = [
            f"| `{key}` | {inspect.getdoc(method).splitlines()[0]} |"
            for key, method in inspect.getmembers(value, inspect.isfunction)
            if not key.startswith("_") and method.__module__.startswith("fedres.")
        ]
        if methods:
            lines += ["", "| method | |", "|---|---|", *methods]
    else:
        lines[2:2] = [f"`{name}({', '.join(inspect.signature(value).parameters)})`", ""]
    return "\n".join(lines)


def page():
    """The whole reference."""
    parts = [
        "# API reference\n\nFrom the docstrings; `python docs/make_api.py` writes this page anew. "
        "`help(fedres.simulate)` and the like say the same."
    ]
    for name, (title, names) in MODULES.items():
        module = import_module(name)
        parts.append(f"## {title}: `{name}`")
        parts += [entry(one, getattr(module, one)) for one in names or module.__all__]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
