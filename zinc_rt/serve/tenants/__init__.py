"""Who may ask what: keys, quotas, sessions, and the endpoints that administer them."""
