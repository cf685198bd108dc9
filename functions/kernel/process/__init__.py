"""Parts of every process of Nightjar: opened stores, logs, meters, tracing, supervision."""
