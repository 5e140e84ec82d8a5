"""A small server in a process of its own, whose start and end a test decides."""

import sys
from pathlib import Path

from engine_adapter.engine_home import EngineHome
from engine_adapter.servers.process import ServerProcess, free_port

SCRIPT = '''
import http.server, os, signal, subprocess, sys, threading, time
port, how = int(sys.argv[1]), sys.argv[2]

def end(*_):
    print("asked to end", flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in how else end)
if "child" in how:
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); "
                              "time.sleep(600)"], start_new_session=True)
if "crash" in how:
    sys.exit("ValueError: no such thing as " + how)
if "silent" in how:
    print("still loading", flush=True)
    time.sleep(600)
loading = [2 if "loading" in how else 0]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path == ("/v1/models" if "healthless" in how else "/health")
        loading[0] -= 1
        self.send_response(503 if loading[0] >= 0 else 200 if known else 404)
        self.end_headers()
    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''


def small_server(how: str, *, log_path: Path | None = None, port: int | None = None,
                 deadline_s: float = 20.0) -> ServerProcess:
    """Not started yet; `how` holds the words that SCRIPT looks for."""
    home, port = EngineHome(log_path), port or free_port()
    return ServerProcess([sys.executable, "-c", SCRIPT, str(port), how], home=home,
                         environment=home.environment(), base_url=f"http://127.0.0.1:{port}",
                         deadline_s=deadline_s)


def children_of(pid: int) -> list[int]:
    """Process ids whose parent is this one."""
    return [int(task) for task in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
