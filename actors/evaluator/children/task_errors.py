"""Turns an exception of the task's code into one message with the task's own line."""

from __future__ import annotations

import traceback

from actors.evaluator.children.source_import import DEPENDENCY_FOLDER


class UnsuitableTaskError(Exception):
    """The task can't be judged; the message has the reason."""


class task_errors_as:  # lower case, since it reads as a word: `with task_errors_as("…")`
    """Turn an exception of the task's code into `UnsuitableTaskError`, with the task's own line."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, UnsuitableTaskError):
            return
        line = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.endswith("/task.py"):
                line = f" (line {frame.lineno})"
            elif f"/{DEPENDENCY_FOLDER}/" in frame.filename:
                line = (
                    f" ({frame.filename.rpartition(f'/{DEPENDENCY_FOLDER}/')[2]}, line "
                    f"{frame.lineno})"
                )
        if isinstance(error, SyntaxError) and error.lineno:
            line = f" (line {error.lineno})"
        message = f"{type(error).__name__}: {error}".splitlines()[0][:300].rstrip(": ")
        raise UnsuitableTaskError(f"{self.where} raised {message}{line}{_advice(error)}") from error


def _advice(error: BaseException) -> str:
    """Return advice on errors that happen only here, outside of the task's folder."""
    if isinstance(error, ModuleNotFoundError):
        return (
            ": it is not installed, and no import statement finds it beside the task's file; "
            "--import-path DIR names the folder around a package of yours"
        )
    if isinstance(error, FileNotFoundError):
        return ": a task is judged as text, away from its folder and your home; make its data in it"
    return ""
