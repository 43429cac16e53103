"""Access control: keys, quotas, sessions, and the endpoints that administer them."""
