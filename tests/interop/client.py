"""The official Python SDK as a client: `python client.py PLAN.json MODE`.

MODE is how the SDK opens a connection: `legacy` (initialize) or `auto` (its default: it asks for the
newest era first and falls back). The plan is the one of client.mjs. Prints `ok - ...` or `not ok - ...`
for each check; exit code 1 when one failed.
"""

import asyncio
import base64
import json
import re
import sys
import time
from contextlib import AsyncExitStack

import anyio
from mcp import Client, StdioServerParameters

with open(sys.argv[1], encoding="utf-8") as file:
    PLAN = json.load(file)
MODE = sys.argv[2]
CHECKS = []


def check(what):
    def register(function):
        CHECKS.append((what, function))
        return function

    return register


class Clients:
    """One session for each distinct command."""

    def __init__(self, stack):
        self.stack, self.open = stack, {}

    async def session(self, server):
        command = PLAN["servers"][server]["command"]
        key = json.dumps(command)
        if key not in self.open:
            parameters = StdioServerParameters(command=command[0], args=command[1:], env=PLAN["env"])
            self.open[key] = await self.stack.enter_async_context(Client(parameters, mode=MODE))
        return self.open[key]

    async def tools(self, server):
        client = await self.session(server)
        found, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return found

    async def call(self, server, tool, arguments, **options):
        client = await self.session(server)
        return await client.call_tool(exposed(server, tool), arguments, **options)


def exposed(server, tool):
    return tool if PLAN["direct"] else f"mcp_{server}_" + re.sub(r"[^A-Za-z0-9_]", "_", tool)


def equal(actual, expected):
    assert actual == expected, f"{actual!r:.300} is not {expected!r:.300}"


@check("every tool of every server is listed with its own schema")
async def _(clients):
    for server, entry in PLAN["servers"].items():
        end, want = time.monotonic() + 60, {exposed(server, tool["name"]): tool for tool in entry["expected"]}
        while True:
            listed = {tool.name: tool for tool in await clients.tools(server)}
            if want.keys() <= listed.keys():
                break
            assert time.monotonic() < end, f"{server}: missing {sorted(want.keys() - listed.keys())}"
            await asyncio.sleep(0.05)
        for name, tool in want.items():
            equal(listed[name].input_schema, tool["inputSchema"])
            equal(listed[name].description, tool["description"])


@check("unicode comes back as it was sent")
async def _(clients):
    text = "日本語 · 🦀 · עברית · e\u0301 · \u2028 · \u0001 · \\u0041 · \"quoted\""
    equal((await clients.call("everything", "echo", {"message": text})).content[0].text, f"Echo: {text}")


@check("a megabyte comes back whole")
async def _(clients):
    text = "é" * (1 << 19)
    equal(len((await clients.call("everything", "echo", {"message": text})).content[0].text), len(text) + 6)


@check("an image is the same PNG")
async def _(clients):
    result = await clients.call("everything", "get-tiny-image", {})
    image = next(block for block in result.content if block.type == "image")
    equal(image.mime_type, "image/png")
    equal(base64.b64decode(image.data)[1:4], b"PNG")


@check("structured content passes the SDK's own validation")
async def _(clients):
    result = await clients.call("everything", "get-structured-content", {"location": "Chicago"})
    equal(result.structured_content, {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82})


@check("progress arrives in order, before the result")
async def _(clients):
    steps = []

    async def progress(at, total, _message):
        steps.append((at, total))

    arguments = {"duration": 0.4, "steps": 4}
    await clients.call("everything", "trigger-long-running-operation", arguments, progress_callback=progress)
    equal(steps, [(1, 4), (2, 4), (3, 4), (4, 4)])


@check("thirty calls at once each get their own answer")
async def _(clients):
    calls = (clients.call("everything", "echo", {"message": f"n{n}"}) for n in range(30))
    for n, result in enumerate(await asyncio.gather(*calls)):
        equal(result.content[0].text, f"Echo: n{n}")


@check("a wrong argument is an error and says which")
async def _(clients):
    try:
        result = await clients.call("everything", "echo", {"wrong": 1})
        assert result.is_error
        text = result.content[0].text
    except Exception as error:  # a JSON-RPC error is an answer too
        text = str(error)
    assert "message" in text, text


@check("files are written and read, names and contents in unicode")
async def _(clients):
    path, content = f"{PLAN['folder']}/py-ünïcode-日本.txt", "first\nzweite Zeile ä\n"
    assert not (await clients.call("filesystem", "write_file", {"path": path, "content": content})).is_error
    equal((await clients.call("filesystem", "read_text_file", {"path": path})).content[0].text, content)


@check("a file outside the allowed folder is refused by the server itself")
async def _(clients):
    result = await clients.call("filesystem", "read_text_file", {"path": "/etc/passwd"})
    assert result.is_error, result


@check("the memory server keeps a graph")
async def _(clients):
    entity = {"name": f"py-{MODE}-節点", "entityType": "test", "observations": ["beobachtet"]}
    await clients.call("memory", "create_entities", {"entities": [entity]})
    found = await clients.call("memory", "search_nodes", {"query": entity["name"]})
    equal(json.loads(found.content[0].text)["entities"], [entity])


@check("servers over HTTP and legacy SSE answer like local ones, with progress")
async def _(clients):
    for server in PLAN["remote"]:
        text = "日本語 · \u2028 · é" * 500
        equal((await clients.call(server, "echo", {"message": text})).content[0].text, f"Echo: {text}")
        steps = []

        async def progress(at, total, _message):
            steps.append((at, total))

        if server.startswith("python"):
            await clients.call(server, "count", {"to": 4}, progress_callback=progress)
        else:
            arguments = {"duration": 0.4, "steps": 4}
            await clients.call(server, "trigger-long-running-operation", arguments, progress_callback=progress)
        equal(steps, [(1, 4), (2, 4), (3, 4), (4, 4)])
        calls = (clients.call(server, "echo", {"message": f"n{n}"}) for n in range(30))
        for n, result in enumerate(await asyncio.gather(*calls)):
            equal(result.content[0].text, f"Echo: n{n}")


async def main():
    failed = 0
    async with AsyncExitStack() as stack:
        clients = Clients(stack)
        for server in PLAN["servers"]:
            await clients.session(server)
        for what, function in CHECKS:
            try:
                with anyio.fail_after(120):
                    await function(clients)
                print(f"ok - py {MODE}: {what}")
            except Exception as error:
                failed += 1
                print(f"not ok - py {MODE}: {what}: {type(error).__name__}: {error!s:.500}")
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
