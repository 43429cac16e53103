"""An inference server with OpenAI's API, tenants and a chat page. One process owns one device."""
