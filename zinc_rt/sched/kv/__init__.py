"""The KV cache: pages, cached prefixes, recurrent-state rows, and quotas."""
