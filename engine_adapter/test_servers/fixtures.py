"""Every answer that a client must get right, from the public bug reports of the field's clients.

Each fixture works against a ScriptedServer. A client that reports what `expect` says for all of them
counts tokens, sees failures and reads times as it should.
"""

from engine_adapter.test_servers.failure_fixtures import BROKEN, ERRORS_IN_STREAM, HANGS, STATUSES
from engine_adapter.test_servers.fixture import Fixture
from engine_adapter.test_servers.framing_fixtures import EVENT_STREAMS, HTTP_FRAMES
from engine_adapter.test_servers.token_fixtures import COUNTS, KINDS_OF_MESSAGE

FIXTURES: tuple[Fixture, ...] = (
    *KINDS_OF_MESSAGE, *COUNTS, *EVENT_STREAMS, *HTTP_FRAMES, *ERRORS_IN_STREAM, *STATUSES, *BROKEN, *HANGS)
