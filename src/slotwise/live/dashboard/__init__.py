"""The dashboard: pages that a browser draws from the public API, and the sessions that let a browser in."""
