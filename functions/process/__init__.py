"""What every process of Nightjar has: opened stores, logs, meters, tracing, supervision."""
