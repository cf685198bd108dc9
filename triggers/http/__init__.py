"""HTTP triggers: connection, front, hosts, identity, bodies, answering, routes, problem documents."""
