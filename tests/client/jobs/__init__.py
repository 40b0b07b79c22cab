"""Programs that the tests run as processes of their own; each prints a line of JSON."""
