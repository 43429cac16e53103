"""The server: OpenAI's API, tenants, a chat page, over one process that owns one device."""
