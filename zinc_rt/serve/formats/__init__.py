"""Output formats of model families: the markers and syntax of reasoning and tool calls."""
