"""Reading a configuration: a YAML file and settings on top of it."""

from __future__ import annotations

import codecs
import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from visterm.pipeline.console import without_password
from visterm.pipeline.errors import UserError

from .models import TAGS, Config, Settings

_MOST_BYTES = 1_000_000  # of a configuration file
_MOST_LEVELS = 50  # of nesting; lists within a setting have two or three
_MOST_SHOWN = 100  # characters of a value in a message
# Settings that name files.
_PATHS = (
    ("collection", "labels"),
    ("collection", "clicks"),
    ("collection", "triplets"),
    ("collection", "vectors", "file"),
    ("collection", "vectors", "ids"),
    ("features", "onnx", "model"),
    ("hier", "is_a"),
    ("evaluate", "is_a"),
    ("index", "uri"),
)


# libyaml's loader is several times as fast; PyYAML may be built without it. Mypy knows no base chosen so.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1 as PyYAML reads it, but as YAML 1.2 has it ``1e-3`` is a number, and no key is there twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [str(key.value) for key, _ in node.value]
        for i, (key, _) in enumerate(node.value):
            if keys[i] in keys[:i]:
                raise yaml.MarkedYAMLError(problem=f"{keys[i]} is there twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _load_yaml(text: str) -> Any:
    try:
        _check_events(text)
        return yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise
    except Exception as error:  # of many kinds, for values such as 2020-99-99, 0x_ or !!int abc
        raise yaml.YAMLError(_shortened(" ".join(str(error).split()))) from None


def _check_events(text: str) -> None:
    """Refuse aliases, of which nested ones stand for more values than memory has room for, and deep nesting."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark  # libyaml's is a class of its own
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not read", problem_mark=mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_LEVELS:
            raise yaml.YAMLError("it is nested too deeply")


def load_config(file: Path | None = None, settings: list[str] | None = None, *, of_run: bool = False) -> Config:
    """Read a configuration file, or take the defaults, and put settings ``section.key=value`` on top.

    Paths in a file are relative to its folder. A file `of_run` has all settings that there were when it was kept; what
    came later is as it was then. UserError if the file cannot be read, or a key or value is unknown.
    """
    values: Settings = {}
    if file is not None:
        values = _read_yaml(file)
        for *names, key in _PATHS:  # relative to the file
            section: Any = values
            for name in names:
                section = section.get(name) if isinstance(section, dict) else None
            if isinstance(section, dict) and key in section:
                section[key] = _resolved(section[key], file.parent, str(file))
        section = values.get("features")
        if of_run and isinstance(section, dict) and isinstance(section.get("deep"), dict):
            section["deep"].setdefault("precision", "float32")
    for setting in settings or []:
        _set(values, setting)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{_source(error, file, settings or [])}: {_explain(error)}") from None


def check_flags(flags: Mapping[str, str], settings: Sequence[str]) -> None:
    """Refuse single settings that give another value to the key of a setting that a flag stands for."""
    for flag, of_flag in flags.items():
        key = of_flag.partition("=")[0].split(".")
        asked, said = _value_at(key, settings), _value_at(key, [of_flag])
        if asked is not _MISSING and asked != said:
            setting = _last_of(key, settings)
            raise UserError(f"{flag} and --set {setting}: they contradict each other; leave one of them out")


_MISSING = object()  # no value, not even null


def _value_at(key: Sequence[str], settings: Sequence[str]) -> Any:
    """The value that settings give to a key, or to a section as a whole."""
    values: Any = {}
    for setting in settings:
        _set(values, setting)
    for name in key:
        values = values.get(name, _MISSING) if isinstance(values, dict) else _MISSING
    return values


def with_settings(config: Config, settings: Mapping[str, Any], *, source: str = "the configuration") -> Config:
    """Return a configuration with other values of settings ``section.key``; UserError as for `load_config`."""
    values = config.model_dump()
    for key, value in settings.items():
        *sections, last = key.split(".")
        inner: Any = values
        for section in sections:
            inner = inner.get(section)
            if not isinstance(inner, dict):
                raise UserError(f"{source}: unknown key {key}")
        inner[last] = value
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{source}: {_explain(error)}") from None


def read_values(text: str) -> list[Any]:
    """Read values with commas between them, each as YAML has it; UserError if they are not."""
    try:
        return _load_yaml(f"[{text}]")
    except yaml.YAMLError:
        raise UserError(f"{_shortened(text)}: the values are not valid YAML") from None


def _source(error: ValidationError, file: Path | None, settings: list[str]) -> str:
    """Where the value of the first complaint came from: the last setting of its key or section, or else the file."""
    if (setting := _last_of([str(part) for part in error.errors()[0]["loc"]], settings)) is not None:
        return f"--set {setting}"
    return str(file) if file else "the configuration"


def _last_of(where: Sequence[str], settings: Sequence[str]) -> str | None:
    """The last setting of a key or its section, as it is shown."""
    for setting in reversed(settings):
        key = setting.partition("=")[0].split(".")
        if all(a == b for a, b in zip(key, where, strict=False)):
            return _shortened(without_password(setting))
    return None


def _names_file(value: Any) -> bool:
    """Whether the value of one of `_PATHS` is a path, and no address or word."""
    return isinstance(value, str) and value not in ("auto", "none", *TAGS) and "://" not in value


def _read_yaml(file: Path) -> Settings:
    try:
        if (size := file.stat().st_size) > _MOST_BYTES:
            raise UserError(f"{file}: too large for a configuration ({size / 1e6:,.1f} MB)")
        data = file.read_bytes()
        utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell writes text
        values = _load_yaml(data.decode("utf-16" if utf_16 else "utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such configuration file; configs/ holds examples") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UserError(f"{file}: not valid YAML{line} ({getattr(error, 'problem', error)})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{file}: expected sections such as 'features:', found {type(values).__name__}")
    return values


def _set(values: Settings, setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting}: expected section.key=value, for example --set features.n_visterms=1000")
    *sections, last = key.split(".")
    for section in sections:
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            raise UserError(f"--set {setting}: {section} has no keys of its own")
    try:
        values[last] = None if text == "None" else _load_yaml(text)  # as Python writes YAML's null
    except yaml.YAMLError:
        raise UserError(f"--set {_shortened(setting)}: the value is not valid YAML") from None
    if (*sections, last) in _PATHS:
        values[last] = _resolved(values[last], Path(), f"--set {_shortened(setting)}")


def _resolved(value: Any, folder: Path, source: str) -> Any:
    """Return the value of one of `_PATHS` as an absolute path, or each of a list; other values as they are."""
    if isinstance(value, list):
        return [_resolved(one, folder, source) for one in value]
    if not _names_file(value):
        return value
    try:
        return str((folder / os.path.expanduser(value)).resolve())
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise UserError(f"{source}: {_shortened(value)!r} cannot be a path ({error})") from None


def _explain(error: ValidationError) -> str:
    """Turn the first of pydantic's complaints into one line that names the key and the remedy."""
    complaint, *others = error.errors()
    where: list[str] = []
    model: Any = Config
    unknown_in: Any = Config
    for part in complaint["loc"]:  # pydantic names the branch of a union as if it were a key
        fields = getattr(model, "model_fields", {})
        if part in fields or isinstance(part, int) or complaint["type"] == "extra_forbidden":
            where.append(str(part))
            unknown_in, model = model, fields[part].annotation if part in fields else None
    key = ".".join(where)
    if complaint["type"] == "extra_forbidden":
        names = unknown_in.model_fields
        near = [n for n in difflib.get_close_matches(where[-1], names, n=1) if n != where[-1]]
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
        return f"unknown key {_shortened(key)}; {hint}"
    if complaint["type"] == "value_error":
        return f"{key}: {complaint['ctx']['error']}" if key else str(complaint["ctx"]["error"])
    if complaint["type"] == "model_type":
        complaint["msg"] = "Input should be settings by their names"
    message = complaint["msg"][0].lower() + complaint["msg"][1:]
    for other in others:  # branches of one union
        if other["type"] == "literal_error" and other["loc"][:-1] == complaint["loc"][:-1]:
            message += f" or {other['ctx']['expected']}"
    return f"{_shortened(key)}: {message}, not {_shortened(_repr(complaint['input']))}"


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # a number of more digits than Python writes
        return "a number of very many digits"


def _shortened(text: str) -> str:
    """Return the start of a long text."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
