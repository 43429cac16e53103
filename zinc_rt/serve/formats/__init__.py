"""What each family of models writes around its answer: reasoning, tool calls, and how they are marked."""
