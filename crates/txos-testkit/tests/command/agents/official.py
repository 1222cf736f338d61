"""Goes through a script of calls with the official client of the Model Context Protocol.

    official.py TXOS POLICY SCRIPT
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import os


def contains(there, expected):
    if isinstance(expected, dict) and isinstance(there, dict):
        return all(key in there and contains(there[key], value) for key, value in expected.items())
    if isinstance(expected, str) and expected.startswith("~"):
        return expected[1:] in there
    return there == expected


def field(result, *names):
    """The first of several names: they differ between versions of the client."""
    for name in names:
        if hasattr(result, name):
            return getattr(result, name)
    raise AttributeError(names)


async def main(txos, policy, script):
    with open(script) as file:
        steps = json.load(file)
    server = StdioServerParameters(command=txos, args=["mcp", "--policy", policy], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        assert len(tools) >= 10, tools
        for step in steps:
            result = await session.call_tool(step["tool"], step["arguments"])
            failed = field(result, "isError", "is_error")
            if "error" in step:
                assert failed and step["error"] in result.content[0].text, (step, result)
            else:
                answer = field(result, "structuredContent", "structured_content")
                assert not failed and contains(answer, step.get("expect", {})), (step, result)
    print(f"{len(steps)} calls")


asyncio.run(main(*sys.argv[1:]))
