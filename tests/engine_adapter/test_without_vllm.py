"""The base install has no engine; asking for one says what to install."""

import asyncio
import importlib.util

import pytest

from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.vllm_launch import VllmLaunch
from workloads.errors import UsageError


def test_a_missing_vllm_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, before any process is started."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'stallfree\[cpu\]'"):
        asyncio.run(EmbeddedVllm(VllmLaunch("m")).start())
