"""GPUs: the pool, leases, dispatch, health."""
