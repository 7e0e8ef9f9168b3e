"""Real servers over HTTP for the interop run: started on free ports, listed directly, ended."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
EVERYTHING = HERE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
PYTHON = HERE / ".venv/bin/python"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(env):
    """`{name: (url, process, yardstick)}`; the yardstick is the URL that is listed directly."""
    node, found = shutil.which("node"), {}

    def run(name, command, path, port, listed=None):
        process = subprocess.Popen(
            command, env=env | {"PORT": str(port)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"{name} did not come up: {command}")
                time.sleep(0.05)
        url = f"http://127.0.0.1:{port}{path}"
        found[name] = (url, process, listed or url)
        return url

    http = run("everything_http", [node, str(EVERYTHING), "streamableHttp"], "/mcp", free_port())
    run("everything_sse", [node, str(EVERYTHING), "sse"], "/sse", free_port(), http)
    port = free_port()
    http = run("python_http", [PYTHON, HERE / "py_server.py", "streamable-http", str(port)], "/mcp", port)
    port = free_port()
    run("python_sse", [PYTHON, HERE / "py_server.py", "sse", str(port)], "/sse", port, http)
    return found


def listed_directly(url):
    """Tools over Streamable HTTP with nothing in between."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def post(message):
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            if session := answer.headers.get("mcp-session-id"):
                headers["mcp-session-id"] = session
            text = answer.read().decode()
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
        messages = [json.loads(line) for line in lines or [text] if line.strip()]
        return next((m for m in messages if m.get("id") == message.get("id")), None)

    info = {"name": "yardstick", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    headers["mcp-protocol-version"] = "2025-11-25"
    post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return post({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})["result"]["tools"]


def stop(found):
    for _, process, _ in found.values():
        process.kill()
        process.wait()
