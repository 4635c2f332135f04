"""A server that says back whatever it was sent, in every way in which servers fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote


@dataclass
class EchoServer:
    port: int = 0
    told: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)


def _ways(told: str) -> list[tuple[int, str, str]]:
    """Status, content type and body of each way to fail, and of a success that names too much."""
    error = {"error": {"message": told, "type": told}}
    stream = "text/event-stream"
    delta = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
    end = {"model": told, "choices": [{"index": 0, "delta": {}, "finish_reason": told}]}
    return [
        (401, "application/json", json.dumps(error)),
        (500, "text/html", f"<p>{'x' * 100} {told}</p>"),
        (400, "application/json", json.dumps({"error": "y" * 480 + told})),
        (200, stream, f"data: {json.dumps(error)}\n\n"),
        (200, stream, f"data: not JSON at all, {'z' * 40}{told}\n\n"),
        (200, "text/plain", told),
        (200, "text/plain", quote(told)),
        (200, stream, f"data: {json.dumps(delta)}\n\ndata: {json.dumps(end)}\n\ndata: [DONE]\n\n"),
    ]


@contextmanager
def echo_server() -> Iterator[EchoServer]:
    server = EchoServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Echo", self.headers.get("Authorization", ""))
            self.end_headers()
            self.wfile.write(body)

        def _told(self) -> str:
            return " ".join(f"{name}={value}" for name, value in self.headers.items())

        def do_GET(self) -> None:
            if self.path.endswith("/v1/models"):
                count = self.headers.get("Authorization", "")
                listed = {"data": [{"id": f"model {self._told()}", "max_model_len": count}]}
                self._answer(200, "application/json", json.dumps(listed))
            else:
                self._answer(404, "text/plain", self._told())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/chat/completions"):
                self._answer(404, "text/plain", self._told())
                return
            server.told.append(dict(self.headers.items()))
            server.bodies.append(body)
            ways = _ways(self._told())
            self._answer(*ways[len(server.bodies) % len(ways)])

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = listener.server_port
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
