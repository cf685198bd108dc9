"""HTTP triggers: connection, guard, identity, bodies, routes, problem documents."""
