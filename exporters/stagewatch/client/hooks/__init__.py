"""Hooks into RL frameworks' own timers: one module each, imported only when it is installed."""
