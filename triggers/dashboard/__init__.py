"""The dashboard: pages that render function responses in the browser, and never open a store."""
