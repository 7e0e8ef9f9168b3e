"""A server of the official Python SDK: `python py_server.py TRANSPORT PORT`, TRANSPORT `streamable-http` or `sse`."""

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("python", log_level="WARNING")


@server.tool()
def echo(message: str) -> str:
    """Says it again."""
    return f"Echo: {message}"


@server.tool()
async def count(to: int, ctx: Context) -> int:
    """Counts, with progress."""
    for n in range(1, to + 1):
        await ctx.report_progress(n, to)
    return to


@server.resource("note://today")
def today() -> str:
    """A note."""
    return "nothing to do"


server.run(transport=sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
