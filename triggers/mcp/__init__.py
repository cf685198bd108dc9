"""MCP at `/mcp`: the tools of a coding agent, made from the function table."""
