"""The error tree of the whole project, drawn once.

    StallfreeError                what a user may see: one line that says what to do
    ├── UsageError        64      the input is wrong: flag, file, preset, objective
    ├── EngineError               the engine (engine_adapter.errors)
    │   ├── StartFailed           it never became ready; OutOfMemory is one kind
    │   ├── Crashed               it died while it served
    │   ├── Hung                  it stopped answering
    │   ├── Rejected              it refused one request
    │   └── NeedsRestart          this setting cannot be applied to a running engine
    └── EvidenceError     3       we measured, but cannot say

Foreign exceptions are mapped to these once, at the border where they arise.
"""


class StallfreeError(Exception):
    """Base of every error shown to a user; `exit_code` follows docs/exit-codes.md."""

    exit_code = 70


class UsageError(StallfreeError):
    """The user's input cannot be used; the message says what to change."""

    exit_code = 64


class EvidenceError(StallfreeError):
    """Measurements exist but do not support a statement."""

    exit_code = 3
